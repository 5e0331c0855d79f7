// --weights: a training that begins with the weights of another one, in every chapter.

#include <string>

#include "nn/safetensors.h"
#include "tests/chapters/pipelines.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {
namespace {

class InitialWeights : public PipelineTest {
 protected:
  static constexpr const char* kStart = "start/weights.safetensors";
  /// A small vit, trained for an epoch.
  void SetUp() override {
    make_data(64, 16);
    ASSERT_EQ(train(kCh01, "start", kSmallVit, "1").exit_code, 0);
  }
  Outcome train_on(const std::string& program, const std::string& out, const Flags& more) {
    return train(program, out, joined(kSmallVit, joined({"--weights", kStart}, more)), "1");
  }
  void train_same(const std::string& program, const std::string& out, const Flags& more, const std::string& wanted) {
    const Outcome outcome = train_on(program, out, more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_same_weights(out, wanted);
  }
  void expect_refused(const Outcome& outcome, int exit_code, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  const Flags kSmallVit{"--model", "vit", "--depth", "2", "--width", "16", "--heads", "2"};
};

TEST_F(InitialWeights, AreTheSameWhereverTheLayersAre) {
  const Outcome one = train_on(kCh01, "one", {});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_NE(one.out.find("begins with the weights in start/weights.safetensors"), std::string::npos) << one.out;
  EXPECT_LT(metrics("one")[0]["loss"], metrics("start")[0]["loss"]);
  train_same(kCh02, "naive", {"--ranks", "3"}, "one");
  train_same(kCh07, "controller", {"--form", "naive", "--ranks", "2"}, "one");
  ASSERT_EQ(train_on(kCh01, "two", {"--microbatches", "2"}).exit_code, 0);
  const Flags parts{"--microbatches", "2", "--ranks", "2"};
  train_same(kCh03, "gpipe", parts, "two");
  train_same(kCh04, "1f1b", joined(parts, {"--versions", "flush"}), "two");
  train_same(kCh05, "zbv", joined(parts, {"--schedule", "zbv"}), "two");
  train_same(kCh06, "central", {"--ranks", "2", "--mode", "central"}, "two");
  train_same(kCh06, "mesh", {"--mesh", "dp=2,pp=2"}, "two");
  train_same(kCh07, "remote", {"--form", "remote", "--splits", "2", "--balance", "layers"}, "two");
  ASSERT_EQ(train_on(kCh01, "slices", {"--tensor-slices", "2"}).exit_code, 0);
  train_same(kCh08, "slices-on-ranks", {"--mesh", "pp=2,tp=2"}, "slices");
}

TEST_F(InitialWeights, GoOnFromACheckpointWithoutTheirFile) {
  const Flags whole = joined(kSmallVit, {"--weights", kStart});
  ASSERT_EQ(train(kCh01, "whole", whole, "2").exit_code, 0);
  ASSERT_EQ(train(kCh01, "part", whole, "1").exit_code, 0);
  std::filesystem::remove_all(folder() / "start");
  ASSERT_EQ(ch01({"--resume", "part", "--epochs", "2"}).exit_code, 0);
  expect_same_weights("part", "whole");
}

// A file of another program may have both names of a tied matrix.
TEST_F(InitialWeights, OfATiedMatrixAreEqualOrRefused) {
  write_bytes(folder() / "ab.txt", std::string(400, 'a') + std::string(400, 'b'));
  const Flags gpt{"--data",  "text:ab.txt", "--model",   "gpt", "--depth",  "1", "--width",   "16",
                  "--heads", "2",           "--context", "16",  "--epochs", "1", "--tie-head"};
  ASSERT_EQ(ch01(joined(gpt, {"--out", "tied"})).exit_code, 0);
  const Flags both = joined(gpt, {"--weights", "tied/weights.safetensors"});
  EXPECT_EQ(ch01(both).exit_code, 0);
  expect_refused(ch01(joined(both, {"--weights-except", "lm_head"})), 2, "name the layers of both");
  EXPECT_EQ(ch01(joined(both, {"--weights-except", "lm_head,transformer.wte"})).exit_code, 0);
  const Flags untied(gpt.begin(), gpt.end() - 1);
  expect_refused(ch01(joined(untied, {"--weights", "tied/weights.safetensors"})), 3, "missing: lm_head.bias");
  TensorFile file = load_tensors((folder() / "tied/weights.safetensors").string());
  for (auto& [name, tensor] : file.tensors) {
    tensor = name == "lm_head.weight" ? Tensor::zeros(tensor.shape()) : tensor;
  }
  NamedTensors one = file.tensors;
  std::erase_if(one, [](const auto& named) { return named.first == "lm_head.weight"; });
  save_tensors((folder() / "one").string(), {one, {}});
  EXPECT_EQ(run(kCh03, joined(gpt, {"--weights", "one", "--ranks", "2"})).exit_code, 0);
  expect_refused(run(kCh03, joined(untied, {"--weights", "one", "--ranks", "2"})), 3,
                 "and 'lm_head.weight': use --tie-head");
  save_tensors((folder() / "unequal").string(), {file.tensors, {}});
  for (const Flags& ranks : {Flags{}, Flags{"--ranks", "2"}}) {
    expect_refused(run(ranks.empty() ? kCh01 : kCh03, joined(gpt, joined({"--weights", "unequal"}, ranks))), 3,
                   "'transformer.wte.weight' and 'lm_head.weight' differ");
  }
}

TEST_F(InitialWeights, ThatDoNotFitAreListed) {
  const std::string path = (folder() / kStart).string();
  TensorFile file = load_tensors(path);
  std::erase_if(file.tensors, [](const auto& named) { return named.first.starts_with("head."); });
  file.tensors.emplace_back("head.weight", Tensor::zeros({1000, 16}));
  file.tensors.emplace_back("cls_token", Tensor::zeros({1, 1, 16}));
  save_tensors((folder() / "other").string(), {file.tensors, {}});
  const Flags other = joined(kSmallVit, {"--weights", "other"});
  for (const std::string& program : {kCh01, kCh03, kCh07}) {  // whichever rank has the head
    expect_refused(
        train(program, "none", other, "1"), 3,
        "--weights: 'other' does not match, nothing was changed: differs: head.weight: expected float32[10, 16], got "
        "float32[1000, 16]; missing: head.bias float32[10]; unexpected: cls_token float32[1, 1, 16]");
  }
  std::erase_if(file.tensors, [](const auto& named) { return named.first == "cls_token"; });
  save_tensors((folder() / "other").string(), {file.tensors, {}});
  const Flags without_head = joined(other, {"--weights-except", "head"});
  ASSERT_EQ(train(kCh01, "one", without_head, "1").exit_code, 0);
  ASSERT_EQ(train(kCh02, "naive", without_head, "1").exit_code, 0);
  expect_same_weights("naive", "one");
  expect_refused(train(kCh01, "none", joined(other, {"--weights-except", "head,fc"}), "1"), 2,
                 "--weights-except: expected layers with weights, got 'fc'; the layers of vit are patch_embed, ");
  expect_refused(train(kCh03, "none", joined(other, {"--weights-except", "head.weight"}), "1"), 2,
                 "--weights-except: expected layers, got the weight head.weight; give its layer, head\n");
}

TEST_F(InitialWeights, AreRefusedWhereTheyWouldNotBeUsed) {
  const Flags given{"--weights", kStart};
  expect_refused(ch01(joined(given, {"--resume", "start", "--epochs", "3"})), 2,
                 "--weights: the checkpoint of --resume");
  expect_refused(ch01(joined(given, {"--explain"})), 2, "--weights: --explain trains nothing");
  expect_refused(run(kCh02, joined(given, {"--model", "toy"})), 2, "--weights: --model toy");
  expect_refused(ch01({"--weights-except", "head"}), 2, "--weights-except: it is for --weights only");
  expect_refused(ch01({"--smoke", "--weights", "nowhere"}), 3, "nowhere");
  expect_refused(ch01({"--smoke", "--weights", "start"}), 3, "give the file itself: start/weights.safetensors");
}

}  // namespace
}  // namespace stagecoach::test
