// Weights with the names that they have in PyTorch's libraries, and in several files.

#include "nn/foreign_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/models.h"
#include "nn/residual_blocks.h"
#include "nn/safetensors.h"
#include "nn/weights.h"
#include "nn/weights_index.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;
using test::TemporaryFolder;
using test::write_bytes;

using Shapes = std::map<std::string, Shape>;

Shapes shapes_of(const NamedTensors& tensors) {
  Shapes shapes;
  for (const auto& [name, tensor] : tensors) {
    shapes.emplace(name, tensor.shape());
  }
  return shapes;
}

void add_norm(Shapes& shapes, const std::string& name, std::int64_t channels) {
  for (const char* part : {"weight", "bias", "running_mean", "running_var"}) {
    shapes[name + "." + part] = {channels};
  }
}

/// The weights of torchvision.models.resnet50(num_classes=10), without the counters of batch norm.
Shapes torchvision_resnet50() {
  Shapes shapes{{"conv1.weight", {64, 3, 7, 7}}, {"fc.weight", {10, 2048}}, {"fc.bias", {10}}};
  add_norm(shapes, "bn1", 64);
  std::int64_t inputs = 64;
  const std::int64_t blocks[] = {3, 4, 6, 3};
  for (int group = 0; group < 4; ++group) {
    const std::int64_t width = 64 << group;
    for (int block = 0; block < blocks[group]; ++block) {
      const std::string name = fmt::format("layer{}.{}.", group + 1, block);
      shapes[name + "conv1.weight"] = {width, inputs, 1, 1};
      shapes[name + "conv2.weight"] = {width, width, 3, 3};
      shapes[name + "conv3.weight"] = {4 * width, width, 1, 1};
      add_norm(shapes, name + "bn1", width);
      add_norm(shapes, name + "bn2", width);
      add_norm(shapes, name + "bn3", 4 * width);
      if (block == 0) {
        shapes[name + "downsample.0.weight"] = {4 * width, inputs, 1, 1};
        add_norm(shapes, name + "downsample.1", 4 * width);
      }
      inputs = 4 * width;
    }
  }
  return shapes;
}

TEST(ForeignNames, AResnetHasThoseOfTorchvision) {
  const auto model = make_model("resnet50", {.image_size = 64});
  model->materialize(0, {DeviceType::meta});
  EXPECT_EQ(shapes_of(with_pytorch_names(weights_of(*model))), torchvision_resnet50());
}

std::shared_ptr<Sequential> small_resnet(std::uint64_t seed, std::int64_t classes = 10) {
  auto model = std::make_shared<Sequential>();
  model->add("conv1", std::make_shared<Conv2d>(3, 4, 3, Conv2dSettings{}, Bias::no));
  model->add("layer2.0", std::make_shared<BasicBlock>(4, 8, 2)).add("avgpool", std::make_shared<GlobalAveragePool>());
  model->add("fc", std::make_shared<Linear>(8, classes));
  model->materialize(seed);
  return model;
}

void expect_same_weights(const Module& a, const Module& b) {
  const NamedTensors left = weights_of(a);
  const NamedTensors right = weights_of(b);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(same_bytes(left[i].second, right[i].second)) << left[i].first;
  }
}

/// What a state_dict has: counters too, and here the prefixes of what wrapped the model.
TEST(ForeignNames, AFileOfTorchvisionIsLoaded) {
  const TemporaryFolder folder;
  const auto saved = small_resnet(1);
  NamedTensors theirs;
  for (const auto& [name, tensor] : with_pytorch_names(weights_of(*saved))) {
    theirs.emplace_back("_orig_mod.module." + name, tensor);
  }
  theirs.emplace_back("_orig_mod.module.layer2.0.downsample.1.num_batches_tracked", Tensor::full({}, 7, DType::int32));
  EXPECT_TRUE(std::any_of(theirs.begin(), theirs.end(), [](const auto& named) {
    return named.first == "_orig_mod.module.layer2.0.downsample.0.weight";
  }));
  save_tensors(folder.file("w"), {theirs, {}});
  const auto loaded = small_resnet(2);
  load_weights(folder.file("w"), *loaded);
  expect_same_weights(*loaded, *saved);
}

TEST(ForeignNames, AFileOfTimmIsLoaded) {
  const TemporaryFolder folder;
  const ModelSettings settings{.image_size = 8, .sizes = {.depth = 1, .width = 8, .heads = 2}};
  const auto saved = make_model("vit", settings);
  saved->materialize(1);
  save_weights(folder.file("w"), *saved, Names::pytorch);
  const Shapes theirs = shapes_of(load_tensors(folder.file("w")).tensors);
  // timm.models.VisionTransformer(img_size=8, patch_size=4, embed_dim=8, depth=1, num_heads=2, num_classes=10,
  //                               class_token=False, global_pool="avg", fc_norm=False)
  const Shapes expected{{"pos_embed", {1, 4, 8}},
                        {"patch_embed.proj.weight", {8, 3, 4, 4}},
                        {"patch_embed.proj.bias", {8}},
                        {"blocks.0.norm1.weight", {8}},
                        {"blocks.0.norm1.bias", {8}},
                        {"blocks.0.attn.qkv.weight", {24, 8}},
                        {"blocks.0.attn.qkv.bias", {24}},
                        {"blocks.0.attn.proj.weight", {8, 8}},
                        {"blocks.0.attn.proj.bias", {8}},
                        {"blocks.0.norm2.weight", {8}},
                        {"blocks.0.norm2.bias", {8}},
                        {"blocks.0.mlp.fc1.weight", {32, 8}},
                        {"blocks.0.mlp.fc1.bias", {32}},
                        {"blocks.0.mlp.fc2.weight", {8, 32}},
                        {"blocks.0.mlp.fc2.bias", {8}},
                        {"norm.weight", {8}},
                        {"norm.bias", {8}},
                        {"head.weight", {10, 8}},
                        {"head.bias", {10}}};
  EXPECT_EQ(theirs, expected);
  const auto loaded = make_model("vit", settings);
  loaded->materialize(2);
  load_weights(folder.file("w"), *loaded);
  expect_same_weights(*loaded, *saved);

  NamedTensors with_token = load_tensors(folder.file("w")).tensors;
  with_token.emplace_back("cls_token", Tensor::zeros({1, 1, 8}));
  with_token.emplace_back("fc_norm.weight", Tensor::zeros({8}));
  save_tensors(folder.file("other"), {with_token, {}});
  EXPECT_TRUE(fails_with<DataError>({"unexpected: cls_token float32[1, 1, 8]", "unexpected: fc_norm.weight"},
                                    [&] { load_weights(folder.file("other"), *loaded); }));
}

// PyTorch saves tied weights under one of their names, or under both.
TEST(ForeignNames, AFileOfNanoGptIsLoaded) {
  const TemporaryFolder folder;
  const ModelSettings settings{
      .classes = 11, .sizes = {.depth = 1, .width = 8, .heads = 2, .context = 5}, .tie_head = true};
  const auto saved = make_model("gpt", settings);
  saved->materialize(1);
  static_cast<void>(TiedWeights(saved->named_parameters(), tied_head()));
  for (const std::string left_out : {"none", "lm_head.weight", "transformer.wte.weight"}) {
    NamedTensors theirs = with_pytorch_names(weights_of(*saved));
    theirs.emplace_back("transformer.h.0.attn.bias", Tensor::zeros({1, 1, 5, 5}));  // the stored mask
    std::erase_if(theirs, [&](const auto& named) { return named.first == left_out; });
    save_tensors(folder.file("w"), {theirs, {}});
    const auto loaded = make_model("gpt", settings);
    loaded->materialize(2);
    load_weights(folder.file("w"), *loaded, {.tied = tied_head()});
    expect_same_weights(*loaded, *saved);
    const NamedTensors part =
        load_weights_of(folder.file("w"), weights_of(*loaded),
                        [](const std::string& name) { return name == "lm_head.weight"; }, {.tied = tied_head()});
    ASSERT_EQ(part.size(), 1U) << left_out;
    EXPECT_TRUE(same_bytes(part[0].second, weights_of(*saved).back().second));
  }
  ModelSettings untied = settings;
  untied.tie_head = false;
  const auto other = make_model("gpt", untied);
  other->materialize(2);
  EXPECT_TRUE(fails_with<DataError>({"missing: transformer.wte.weight float32[11, 8]; missing: lm_head.bias",
                                     "one matrix for 'transformer.wte.weight' and 'lm_head.weight'", "`tie_head`"},
                                    [&] { load_weights(folder.file("w"), *other); }));
  const auto alone = make_model("gpt", settings);  // whose head has no bias, but nobody says that it is tied
  alone->materialize(2);
  EXPECT_TRUE(fails_with<DataError>({"missing: transformer.wte.weight float32[11, 8]; the file", "LoadSettings::tied"},
                                    [&] { load_weights(folder.file("w"), *alone); }));
}

// A net that was trained for 1,000 classes begins another training.
TEST(ForeignNames, WhatIsKeptStaysAsItIs) {
  const TemporaryFolder folder;
  const auto saved = small_resnet(1, 1000);
  save_weights(folder.file("w"), *saved, Names::pytorch);
  const auto model = small_resnet(2);
  EXPECT_TRUE(fails_with<DataError>({"differs: fc.weight: expected float32[10, 8], got float32[1000, 8]"},
                                    [&] { load_weights(folder.file("w"), *model); }));
  load_weights(folder.file("w"), *model, {.except = {"fc."}});
  const auto untouched = small_resnet(2);
  for (const auto& [name, tensor] : weights_of(*model)) {
    const NamedTensors others = weights_of(name.starts_with("fc.") ? *untouched : *saved);
    EXPECT_TRUE(same_bytes(tensor, find_tensor(others, name))) << name;
  }
  EXPECT_TRUE(fails_with<UsageError>({"no weight of the model begins with 'head.'"},
                                     [&] { load_weights(folder.file("w"), *model, {.except = {"head."}}); }));
}

class ShardedWeights : public ::testing::Test {
 protected:
  ShardedWeights() {
    std::vector<NamedTensors> parts;
    for (const auto& [first, last] : {std::pair(0, 1), std::pair(1, 2), std::pair(2, 4)}) {
      parts.push_back(weights_of(*saved_->slice(first, last)));
    }
    save_sharded_weights(folder_.file("model"), parts);
  }
  const TemporaryFolder folder_;
  const std::shared_ptr<Sequential> saved_ = small_resnet(1);
  const std::shared_ptr<Sequential> loaded_ = small_resnet(2);
  const std::string index_ = folder_.file("model") + "/model.safetensors.index.json";
};

TEST_F(ShardedWeights, AreLoadedByFolderOrIndex) {
  const WeightFiles files = read_weights_index(index_);
  EXPECT_EQ(files.at("conv1.weight"), "model-00001-of-00003.safetensors");
  EXPECT_EQ(files.at("fc.bias"), "model-00003-of-00003.safetensors");
  EXPECT_EQ(files.size(), weights_of(*saved_).size());
  EXPECT_NE(test::read_bytes(index_).find("\"total_size\""), std::string::npos);
  load_weights(index_, *loaded_);
  expect_same_weights(*loaded_, *saved_);
  const auto again = small_resnet(3);
  load_weights(folder_.file("model"), *again);
  expect_same_weights(*again, *saved_);
  save_weights(folder_.file("model.safetensors"), *saved_);
  const auto whole = small_resnet(4);
  load_weights(folder_.path().string(), *whole);
  expect_same_weights(*whole, *saved_);
}

TEST_F(ShardedWeights, ThatAreIncompleteAreRefused) {
  const std::string second = folder_.file("model") + "/model-00002-of-00003.safetensors";
  save_tensors(second, {{{"other", Tensor::zeros({1})}}, {}});
  EXPECT_TRUE(
      fails_with<DataError>({"index.json", "its files have 3 of the"}, [&] { load_weights(index_, *loaded_); }));
  std::filesystem::remove(second);
  EXPECT_TRUE(fails_with<DataError>({"model-00002-of-00003.safetensors"}, [&] { load_weights(index_, *loaded_); }));
  const auto expect_refused = [&](const std::string& text, const char* part) {
    write_bytes(index_, text);
    EXPECT_TRUE(fails_with<DataError>({"index.json", part}, [&] { load_weights(index_, *loaded_); }));
  };
  expect_refused("{", "is not valid JSON");
  expect_refused("[]", "an object with 'weight_map'");
  expect_refused(R"({"weight_map": 3})", "an object with 'weight_map'");
  expect_refused(R"({"weight_map": {"a": "../a.safetensors"}})", "a file beside it for 'a'");
  expect_refused(R"({"weight_map": {"a": 7}})", "a file beside it for 'a', got 7");
  const NamedTensors twice{{"a", Tensor::zeros({1})}};
  EXPECT_TRUE(fails_with<Error>({"'a' is in two parts"}, [&] {
    save_sharded_weights(folder_.file("twice"), {twice, twice});
  }));
}

}  // namespace
}  // namespace stagecoach
