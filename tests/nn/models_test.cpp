#include "nn/models.h"

#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/ops.h"
#include "nn/batch_position.h"
#include "nn/optimizer.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

/// The counts are those of PyTorch's models (for resnet18, the usual form for CIFAR).
TEST(Models, HaveTheKnownParameterCounts) {
  EXPECT_EQ(parameter_count(*make_model("toy")), 44);
  EXPECT_EQ(parameter_count(*make_model("convnet")), 62'006);
  EXPECT_EQ(parameter_count(*make_model("resnet18")), 11'173'962);
  EXPECT_EQ(parameter_count(*make_model("resnet50")), 23'528'522);
  EXPECT_EQ(parameter_count(*make_model("resnet50", {.classes = 1000})), 25'557'032);
  EXPECT_EQ(parameter_count(*make_model("vit")), 407'882);
  EXPECT_EQ(parameter_count(*make_model("mlp")), 578'314);
  EXPECT_EQ(parameter_count(*make_model("gpt", {.classes = 256})), 237'184);
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

constexpr ModelSizes kTinyGpt{.depth = 2, .width = 8, .heads = 2, .context = 6};

// Those of nanoGPT, so that its programs can load the weights.
TEST(Models, GptHasTheNamesOfNanoGpt) {
  const auto gpt = make_model("gpt", {.classes = 256, .sizes = kTinyGpt});
  EXPECT_EQ(gpt->size(), 2 + 2 + 2);
  EXPECT_EQ(gpt->output_shape({5, 6}), (Shape{5, 6, 256}));
  gpt->materialize(1);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : gpt->named_parameters()) {
    names.push_back(name);
  }
  const std::string first = "transformer.h.0.";
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 15),
            (std::vector<std::string>{"transformer.wte.weight", "transformer.wpe.weight", first + "ln_1.weight",
                                      first + "ln_1.bias", first + "attn.c_attn.weight", first + "attn.c_attn.bias",
                                      first + "attn.c_proj.weight", first + "attn.c_proj.bias", first + "ln_2.weight",
                                      first + "ln_2.bias", first + "mlp.c_fc.weight", first + "mlp.c_fc.bias",
                                      first + "mlp.c_proj.weight", first + "mlp.c_proj.bias",
                                      "transformer.h.1.ln_1.weight"}));
  EXPECT_EQ(
      std::vector<std::string>(names.end() - 4, names.end()),
      (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight", "lm_head.bias"}));
}

TEST(Models, GptWithATiedHeadHasNoBiasOfTheHead) {
  const auto names_of = [](const ModelSettings& settings) {
    const auto gpt = make_model("gpt", settings);
    gpt->materialize(1, Device{DeviceType::meta});
    std::set<std::string> names;
    for (const auto& [name, parameter] : gpt->named_parameters()) {
      names.insert(name);
    }
    return names;
  };
  std::set<std::string> wanted = names_of({.classes = 256, .sizes = kTinyGpt});
  wanted.erase("lm_head.bias");
  EXPECT_EQ(names_of({.classes = 256, .sizes = kTinyGpt, .tie_head = true}), wanted);
  for (const auto& [first, copy] : tied_head()) {
    EXPECT_TRUE(wanted.contains(first) && wanted.contains(copy));
  }
  EXPECT_TRUE(
      fails_with<UsageError>({"model vit", "leave out `tie_head`"}, [] { make_model("vit", {.tie_head = true}); }));
}

TEST(Models, GptBeginsAsGpt2) {
  const auto gpt = make_model("gpt", {.classes = 256, .sizes = {.depth = 2, .width = 64, .heads = 2}});
  gpt->materialize(1);
  for (const auto& [name, parameter] : gpt->named_parameters()) {
    const bool is_norm = name.find("ln_") != std::string::npos;
    const double deviation = std::sqrt(sum_of_squares(parameter) / static_cast<double>(parameter.numel()));
    if (name.ends_with("bias")) {
      EXPECT_EQ(deviation, 0) << name;
    } else if (!is_norm) {
      EXPECT_NEAR(deviation, name.ends_with("c_proj.weight") ? 0.01 : 0.02, 0.0005) << name;
    }
  }
}

// Its loss is then about that of a guess, and no output knows a later token.
TEST(Models, GptPredictsFromEarlierTokensOnly) {
  const auto gpt = make_model("gpt", {.classes = 256, .sizes = kTinyGpt});
  gpt->materialize(1);
  const NoGrad no_grad;
  const auto logits = [&](std::vector<std::int32_t> tokens) {
    return gpt->forward(test::labels_of(tokens).reshape({1, 6}));
  };
  const Tensor one = logits({7, 0, 255, 3, 4, 5});
  const Tensor other = logits({7, 0, 255, 3, 4, 6});
  EXPECT_EQ(one.reshape({6, 256}).narrow(0, 5).to_vector<float>(),
            other.reshape({6, 256}).narrow(0, 5).to_vector<float>());
  EXPECT_FALSE(same_bytes(one, other));
  const Tensor labels = test::labels_of({0, 255, 3, 4, 5, 6}).reshape({1, 6});
  EXPECT_NEAR(cross_entropy(one, labels).item(), std::log(256.0), 0.05);
}

// The masks follow the samples, so micro-batches have those of the whole batch.
TEST(Models, DropoutOfGptDoesNotDependOnMicroBatches) {
  const auto gpt = make_model("gpt", {.classes = 256, .sizes = kTinyGpt, .dropout = 0.3, .seed = 5});
  gpt->materialize(1);
  const NoGrad no_grad;
  const auto forward = [&](std::int64_t step, std::int64_t first, std::int64_t count) {
    const BatchScope scope(BatchPosition{step, first});
    return gpt->forward(Tensor::full({count, 6}, 65, DType::int32));
  };
  const Tensor whole = forward(3, 0, 4);
  EXPECT_TRUE(same_bytes(whole, cat({forward(3, 0, 1), forward(3, 1, 3)})));
  EXPECT_FALSE(same_bytes(whole, forward(4, 0, 4)));
  EXPECT_FALSE(same_bytes(whole.narrow(0, 1), whole.narrow(1, 1)));
  gpt->train(false);
  EXPECT_TRUE(same_bytes(forward(3, 0, 1), forward(4, 2, 1)));
}

TEST(Models, AllNamesCanBeMade) {
  EXPECT_EQ(model_names(), (std::vector<std::string>{"toy", "convnet", "resnet18", "resnet50", "vit", "mlp", "gpt"}));
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
  EXPECT_TRUE(fails_with<UsageError>({"model vit", "expected no `dropout`", "got 0.5"},
                                     [] { make_model("vit", {.dropout = 0.5}); }));
  EXPECT_THROW(make_model("gpt", {.dropout = 1}), UsageError);
  EXPECT_TRUE(
      fails_with<UsageError>({"model vit", "no `context`"}, [] { make_model("vit", {.sizes = {.context = 8}}); }));
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
