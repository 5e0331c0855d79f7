#include "nn/weights.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "nn/layers.h"
#include "nn/models.h"
#include "nn/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::read_bytes;
using test::same_bytes;
using test::TemporaryFolder;
using test::write_bytes;

std::shared_ptr<Sequential> small_model(std::uint64_t seed, std::int64_t outputs = 2) {
  auto model = std::make_shared<Sequential>();
  model->add("conv", std::make_shared<Conv2d>(1, 2, 3)).add("bn", std::make_shared<BatchNorm2d>(2));
  model->add("pool", std::make_shared<GlobalAveragePool>()).add("fc", std::make_shared<Linear>(2, outputs));
  model->materialize(seed);
  return model;
}

TEST(Weights, ComeBackBitForBit) {
  const TemporaryFolder folder;
  const auto saved = small_model(1);
  const Tensor x = random_tensor({2, 1, 5, 5}, "x", DType::float32);
  saved->forward(x);  // moves the running statistics
  save_weights(folder.file("w"), *saved);
  const auto loaded = small_model(2);
  load_weights(folder.file("w"), *loaded);
  saved->train(false);
  loaded->train(false);
  EXPECT_TRUE(same_bytes(saved->forward(x), loaded->forward(x)));
  save_weights(folder.file("again"), *loaded);
  EXPECT_EQ(read_bytes(folder.file("w")), read_bytes(folder.file("again")));
}

TEST(Weights, AreTheParametersThenTheBuffers) {
  const TemporaryFolder folder;
  save_weights(folder.file("w"), *small_model(1));
  const TensorFile file = load_tensors(folder.file("w"));
  ASSERT_EQ(file.tensors.size(), 8U);
  EXPECT_EQ(file.tensors[0].first, "conv.weight");
  EXPECT_EQ(file.tensors[5].first, "fc.bias");
  EXPECT_EQ(file.tensors[7].first, "bn.running_var");
  EXPECT_TRUE(file.metadata.empty());
}

// A rank reads what is its own, and sees that the file fits the whole model.
TEST(Weights, OfAPartOfTheModelAreRead) {
  const TemporaryFolder folder;
  const auto saved = small_model(1, 3);
  save_weights(folder.file("w"), *saved);
  const auto whole = [](std::int64_t outputs) { return weights_of(*small_model(2, outputs)); };
  const auto is_of_fc = [](const std::string& name) { return name.starts_with("fc."); };
  const NamedTensors fc = load_weights_of(folder.file("w"), whole(3), is_of_fc);
  ASSERT_EQ(fc.size(), 2U);
  for (const auto& [name, tensor] : fc) {
    const NamedTensors all = weights_of(*saved);
    EXPECT_TRUE(same_bytes(tensor, find_tensor(all, name))) << name;
  }
  const auto is_not_of_fc = [&](const std::string& name) { return !is_of_fc(name); };
  EXPECT_TRUE(fails_with<DataError>({"differs: fc.weight: expected float32[2, 2], got float32[3, 2]"},
                                    [&] { load_weights_of(folder.file("w"), whole(2), is_not_of_fc); }));
  EXPECT_EQ(load_weights_of(folder.file("w"), whole(2), is_not_of_fc, {.except = {"fc."}}).size(),
            weights_of(*saved).size() - 2);
}

TEST(Weights, ThatDoNotFitAreListedAndNothingIsChanged) {
  const TemporaryFolder folder;
  const auto saved = small_model(1, 3);
  NamedTensors tensors = saved->named_parameters();
  tensors.emplace_back("odd", Tensor::zeros({1}));
  save_tensors(folder.file("w"), {tensors, {}});
  const auto model = small_model(2);
  const std::string path = folder.file("w");
  EXPECT_TRUE(fails_with<DataError>(
      {path.c_str(), "differs: fc.weight: expected float32[2, 2], got float32[3, 2]", "differs: fc.bias",
       "missing: bn.running_mean", "missing: bn.running_var", "unexpected: odd"},
      [&] { load_weights(path, *model); }));
  const auto untouched = small_model(2);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(same_bytes(model->named_parameters()[i].second, untouched->named_parameters()[i].second));
  }
}

TEST(Weights, InHalfPrecisionAreWidened) {
  const TemporaryFolder folder;
  NamedTensors tensors = weights_of(*small_model(1));
  for (auto& [name, tensor] : tensors) {
    const auto count = static_cast<std::size_t>(tensor.numel());
    tensor = Tensor::from(std::vector<Half>(count, to_half(-0.5F)), tensor.shape());
  }
  save_tensors(folder.file("w"), {tensors, {}});
  const auto model = small_model(2);
  load_weights(folder.file("w"), *model);
  EXPECT_EQ(model->named_parameters()[5].second.to_vector<float>(), (std::vector<float>{-0.5F, -0.5F}));
}

TEST(Weights, FromDamagedOrMissingFilesChangeNothing) {
  const TemporaryFolder folder;
  save_weights(folder.file("w"), *small_model(1));
  std::string bytes = read_bytes(folder.file("w"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(folder.file("w"), bytes);
  const auto model = small_model(2);
  EXPECT_TRUE(fails_with<DataError>({"damaged"}, [&] { load_weights(folder.file("w"), *model); }));
  EXPECT_TRUE(fails_with<DataError>({"No such file"}, [&] { load_weights(folder.file("none"), *model); }));
  EXPECT_TRUE(same_bytes(model->named_parameters()[0].second, small_model(2)->named_parameters()[0].second));
}

// A run's folder has weights under another name than a model's folder.
TEST(Weights, InAFolderWithoutAModelAreNamed) {
  const TemporaryFolder folder;
  const auto model = small_model(1);
  const auto load = [&] { load_weights((folder.path()).string(), *model); };
  EXPECT_TRUE(
      fails_with<DataError>({"has neither model.safetensors.index.json nor model.safetensors", "give a file"}, load));
  save_weights(folder.file("weights.safetensors"), *model);
  EXPECT_TRUE(fails_with<DataError>({"give the file itself", folder.file("weights.safetensors").c_str()}, load));
  save_weights(folder.file("model.safetensors"), *model);
  load();
}

TEST(Weights, ThatAreNotFiniteAreRefusedWithTheirPlace) {
  const TemporaryFolder folder;
  const auto model = small_model(2, 3);
  const auto refused = [&](const std::string& name, std::vector<float> values, const Shape& shape,
                           const std::string& part) {
    NamedTensors tensors = weights_of(*small_model(1, 3));
    for (auto& [given, tensor] : tensors) {
      tensor = given == name ? Tensor::from(values, shape) : tensor;
    }
    save_tensors(folder.file("w"), {tensors, {}});
    EXPECT_TRUE(fails_with<DataError>({folder.file("w").c_str(), part.c_str()},
                                      [&] { load_weights(folder.file("w"), *model); }));
  };
  const float infinity = std::numeric_limits<float>::infinity();
  refused("fc.weight", {1, 2, 3, 4, 5, -infinity}, {3, 2}, "an infinite number in fc.weight at [2, 1]");
  refused("bn.running_mean", {std::numeric_limits<float>::quiet_NaN(), 1}, {2}, "NaN in bn.running_mean at [0]");
  load_weights(folder.file("w"), *model, {.except = {"bn."}});
  EXPECT_TRUE(same_bytes(model->named_parameters()[5].second, small_model(1, 3)->named_parameters()[5].second));
}

TEST(Weights, NeedAModuleWithMemory) {
  const TemporaryFolder folder;
  EXPECT_THROW(save_weights(folder.file("w"), *make_model("toy")), Error);
  EXPECT_EQ(folder.file_count(), 0U);
}

}  // namespace
}  // namespace stagecoach
