#include "nn/models.h"

#include <numeric>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;

/// The counts are those of PyTorch's models (for resnet18, the usual form for CIFAR).
TEST(Models, HaveTheKnownParameterCounts) {
  EXPECT_EQ(parameter_count(*make_model("toy")), 44);
  EXPECT_EQ(parameter_count(*make_model("convnet")), 62'006);
  EXPECT_EQ(parameter_count(*make_model("resnet18")), 11'173'962);
  EXPECT_EQ(parameter_count(*make_model("resnet50")), 23'528'522);
  EXPECT_EQ(parameter_count(*make_model("resnet50", {.classes = 1000})), 25'557'032);
  EXPECT_EQ(parameter_count(*make_model("vit")), 407'882);
  EXPECT_EQ(parameter_count(*make_model("mlp")), 578'314);
}

TEST(Models, ToyGivesTwoNumbers) {
  const auto model = make_model("toy");
  model->materialize(1);
  EXPECT_EQ(model->forward(Tensor::zeros({5, 4})).shape(), (Shape{5, 2}));
}

TEST(Models, ConvnetGivesLogits) {
  const auto model = make_model("convnet", {.classes = 7});
  model->materialize(1);
  EXPECT_EQ(model->size(), 12);
  EXPECT_EQ(model->forward(Tensor::zeros({2, 3, 32, 32})).shape(), (Shape{2, 7}));
}

TEST(Models, SoftmaxHeadGivesProbabilities) {
  const auto model = make_model("convnet", {.softmax_head = true});
  EXPECT_EQ(model->name(model->size() - 1), "softmax");
  EXPECT_EQ(parameter_count(*model), 62'006);
  model->materialize(1);
  const auto row = model->forward(random_tensor({1, 3, 32, 32}, "x", DType::float32)).to_vector<float>();
  EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-6);
}

TEST(Models, ResnetsRunInTrainingAndEvaluation) {
  for (const auto& [name, size] : {std::pair{"resnet18", 16}, std::pair{"resnet50", 32}}) {
    const auto model = make_model(name, {.image_size = size});
    model->materialize(1);
    const NoGrad no_grad;
    const Tensor x = random_tensor({2, 3, size, size}, "x", DType::float32);
    EXPECT_EQ(model->forward(x).shape(), (Shape{2, 10})) << name;
    model->train(false);
    EXPECT_EQ(model->forward(x).shape(), (Shape{2, 10})) << name;
  }
}

TEST(Models, NameResidualBlocksAsLayers) {
  const auto model = make_model("resnet18");
  EXPECT_EQ(model->size(), 3 + 8 + 2);
  EXPECT_EQ(model->name(3), "layer1.0");
  EXPECT_EQ(model->name(10), "layer4.1");
  const auto large = make_model("resnet50");
  EXPECT_EQ(large->size(), 4 + 16 + 2);
  EXPECT_EQ(large->name(19), "layer4.2");
}

// So that stages can be equal, and so that a model of PyTorch can load the weights; those of a block also one of timm.
TEST(Models, HaveEqualLayersOfTheChosenSizes) {
  const auto vit = make_model("vit", {.image_size = 16, .sizes = {.depth = 3, .width = 12, .heads = 2}});
  EXPECT_EQ(vit->size(), 1 + 3 + 3);
  EXPECT_EQ(vit->name(3), "blocks.2");
  EXPECT_EQ(vit->output_shape({5, 3, 16, 16}), (Shape{5, 10}));
  EXPECT_EQ(vit->layer(1)->output_shape({5, 16, 12}), (Shape{5, 16, 12}));
  EXPECT_EQ(vit->layer(1)->parameter_shapes(), vit->layer(3)->parameter_shapes());
  vit->materialize(1);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : vit->layer(1)->named_parameters("blocks.0.")) {
    names.push_back(name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"blocks.0.norm1.weight", "blocks.0.norm1.bias", "blocks.0.attn.qkv.weight",
                                      "blocks.0.attn.qkv.bias", "blocks.0.attn.proj.weight", "blocks.0.attn.proj.bias",
                                      "blocks.0.norm2.weight", "blocks.0.norm2.bias", "blocks.0.mlp.fc1.weight",
                                      "blocks.0.mlp.fc1.bias", "blocks.0.mlp.fc2.weight", "blocks.0.mlp.fc2.bias"}));
  const auto mlp = make_model("mlp", {.sizes = {.depth = 2, .width = 7}});
  EXPECT_EQ(mlp->size(), 1 + 2 + 1);
  EXPECT_EQ(mlp->name(2), "hidden.1");
  EXPECT_EQ(mlp->output_shape({5, 3, 32, 32}), (Shape{5, 10}));
}

// With PyTorch's first weights, eight layers with relu would leave nothing of the differences between images.
TEST(Models, MlpKeepsTheSizeOfItsActivations) {
  const auto model = make_model("mlp");
  model->materialize(1);
  const NoGrad no_grad;
  const auto hidden = model->slice(0, model->size() - 1);
  const Tensor y = hidden->forward(random_tensor({4, 3, 32, 32}, "x", DType::float32));
  double squares = 0;
  for (const float value : y.to_vector<float>()) {
    squares += value * value;
  }
  const double mean = squares / static_cast<double>(y.numel());
  EXPECT_GT(mean, 0.1);
  EXPECT_LT(mean, 30);
}

TEST(Models, AllNamesCanBeMade) {
  EXPECT_EQ(model_names(), (std::vector<std::string>{"toy", "convnet", "resnet18", "resnet50", "vit", "mlp"}));
  for (const auto& name : model_names()) {
    EXPECT_GT(make_model(name, {.image_size = default_image_size(name)})->size(), 0);
  }
  EXPECT_EQ(default_image_size("resnet50"), 64);
  EXPECT_EQ(default_image_size("convnet"), 32);
}

TEST(Models, RefuseWhatTheyCannotBe) {
  EXPECT_TRUE(fails_with<UsageError>({"unknown model: expected one of toy, convnet, resnet18, resnet50, vit, mlp"},
                                     [] { make_model("resnet"); }));
  EXPECT_THROW(default_image_size("resnet"), UsageError);
  EXPECT_TRUE(fails_with<UsageError>({"32"}, [] { make_model("convnet", {.image_size = 64}); }));
  EXPECT_THROW(make_model("resnet18", {.image_size = 4}), UsageError);
  EXPECT_THROW(make_model("resnet50", {.image_size = 16}), UsageError);
  EXPECT_THROW(make_model("toy", {.softmax_head = true}), UsageError);
  EXPECT_THROW(make_model("convnet", {.classes = 0}), UsageError);
  EXPECT_TRUE(
      fails_with<UsageError>({"model vit", "multiple of 4", "got 18"}, [] { make_model("vit", {.image_size = 18}); }));
  EXPECT_TRUE(fails_with<UsageError>({"model vit", "`heads`", "divides the width 64", "got 5"},
                                     [] { make_model("vit", {.sizes = {.heads = 5}}); }));
  EXPECT_TRUE(fails_with<UsageError>({"model mlp", "no `heads`"}, [] { make_model("mlp", {.sizes = {.heads = 1}}); }));
  EXPECT_TRUE(fails_with<UsageError>({"model convnet", "expected no `depth`", "got 4"},
                                     [] { make_model("convnet", {.sizes = {.depth = 4}}); }));
  EXPECT_TRUE(
      fails_with<UsageError>({"positive width", "got -1"}, [] { make_model("vit", {.sizes = {.width = -1}}); }));
}

}  // namespace
}  // namespace stagecoach
