// output_shape returns the shape of the output of forward, and refuses the inputs that forward refuses.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/residual_blocks.h"
#include "nn/transformer.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

/// What `shape` gives; nothing where it throws Error.
template <class GetShape>
std::optional<Shape> shape_or_refusal(const GetShape& get_shape) {
  try {
    return get_shape();
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string text(const std::optional<Shape>& shape) { return shape ? to_string(*shape) : "a refusal"; }

/// Checks a module with memory, in evaluation, both ways. Returns the shape that its forward gives.
std::optional<Shape> expect_same_shape(Module& module, const Shape& input, const std::string& name,
                                       DType type = DType::float32) {
  const NoGrad no_grad;
  const auto forward = shape_or_refusal([&] { return module.forward(Tensor::zeros(input, type)).shape(); });
  const auto predicted = shape_or_refusal([&] { return module.output_shape(input); });
  EXPECT_EQ(text(predicted), text(forward)) << name << " for " << to_string(input);
  return forward;
}

const std::vector<Shape> kOddInputs{{},           {3},          {2, 3},        {2, 0},          {2, 3, 4},
                                    {0, 3, 8, 8}, {1, 3, 7, 9}, {2, 3, 1, 1},  {2, 3, 0, 4},    {2, 3, 33, 31},
                                    {2, 4, 8, 8}, {1, 0, 8, 8}, {3, 3, 5, 64}, {2, 3, 4, 4, 4}, {5, 400}};

TEST(OutputShape, IsThatOfForwardForEveryKindOfLayer) {
  const std::vector<std::pair<std::string, std::shared_ptr<Module>>> layers{
      {"linear", std::make_shared<Linear>(3, 5)},
      {"linear without bias", std::make_shared<Linear>(400, 5, Bias::no)},
      {"conv 3x3", std::make_shared<Conv2d>(3, 4, 3)},
      {"conv 5x5, stride 2, padding 2", std::make_shared<Conv2d>(3, 4, 5, Conv2dSettings{2, 2})},
      {"conv 7x7, stride 3", std::make_shared<Conv2d>(3, 4, 7, Conv2dSettings{3, 0}, Bias::no)},
      {"relu", std::make_shared<ReLU>()},
      {"pool 2", std::make_shared<MaxPool2d>(2)},
      {"pool 3, stride 2, padding 1", std::make_shared<MaxPool2d>(Window{3, 2, 1})},
      {"average", std::make_shared<GlobalAveragePool>()},
      {"flatten", std::make_shared<Flatten>()},
      {"softmax", std::make_shared<Softmax>()},
      {"batch norm", std::make_shared<BatchNorm2d>(3)},
      {"basic block", std::make_shared<BasicBlock>(3, 3, 1)},
      {"basic block with a projection", std::make_shared<BasicBlock>(3, 6, 2)},
      {"bottleneck", std::make_shared<Bottleneck>(3, 2, 2)},
      {"layer norm", std::make_shared<LayerNorm>(4)},
      {"gelu", std::make_shared<GELU>()},
      {"token mean", std::make_shared<TokenMean>()},
      {"patch embedding", std::make_shared<PatchEmbedding>(8, 4, 6)},
      {"patch embedding of a large image", std::make_shared<PatchEmbedding>(64, 16, 2)},
      {"attention", std::make_shared<MultiHeadAttention>(4, 2)},
      {"perceptron", std::make_shared<Perceptron>(4, 3)},
      {"transformer block", std::make_shared<TransformerBlock>(4, 2)},
      {"nothing", std::make_shared<Sequential>()},
  };
  for (const auto& [name, layer] : layers) {
    layer->materialize(1);
    layer->train(false);
    for (const Shape& input : kOddInputs) {
      expect_same_shape(*layer, input, name);
    }
  }
}

/// Each layer gets what the one before it gives, so every module of the model meets the shapes that it has in training.
TEST(OutputShape, IsThatOfForwardForEveryLayerOfEveryModel) {
  for (const std::string& name : model_names()) {
    const auto least = name == "resnet18" ? 8 : 32;
    const auto model = make_model(name, {.classes = 7, .image_size = least});
    model->materialize(1);
    model->train(false);
    std::vector<Shape> inputs{{2, 3, least, least},         {1, 3, least, least}, {0, 3, least, least},
                              {2, 3, least + 5, least + 1}, {2, 4, least, least}, {2, 3}};
    if (name == "toy") {
      inputs = {{3, 4}, {1, 4}, {0, 4}, {3, 5}, {3, 4, 1}};
    }
    DType type = DType::float32;
    if (name == "gpt") {
      inputs = {{3, 64}, {1, 64}, {0, 64}, {3, 65}, {3, 1}, {64}, {3, 64, 1}};
      type = DType::int32;
    }
    for (const Shape& input : inputs) {
      expect_same_shape(*model, input, name, type);
      std::optional<Shape> shape = input;
      for (int i = 0; shape && i < model->size(); ++i) {
        shape = expect_same_shape(*model->layer(i), *shape, fmt::format("{}, layer {}", name, model->name(i)),
                                  i == 0 ? type : DType::float32);
      }
    }
  }
}

TEST(OutputShape, NamesTheLayerThatRefuses) {
  const auto model = make_model("convnet");
  EXPECT_TRUE(test::fails_with({"layer 'fc1'", "linear", "[2, 576]", "[120, 400]"}, [&] {
    model->output_shape({2, 3, 36, 36});
  }));
  EXPECT_TRUE(test::fails_with({"layer 'conv1'", "conv2d", "[2, 1, 32, 32]"}, [&] {
    model->output_shape({2, 1, 32, 32});
  }));
}

TEST(OutputShape, AndMakingAModelTakeNoMemory) {
  const Device device;
  const auto reserved = allocator(device).stats().reserved_bytes;
  allocator(device).reset_peak();
  const auto before = allocator(device).stats().current_bytes;
  const auto model = make_model("resnet50", {.image_size = 64});
  EXPECT_EQ(model->output_shape({256, 3, 64, 64}), (Shape{256, 10}));
  EXPECT_EQ(allocator(device).stats().peak_bytes, before);
  EXPECT_EQ(allocator(device).stats().reserved_bytes, reserved);
}

}  // namespace
}  // namespace stagecoach
