/// @file
/// Chapter 8 as its users run it: whatever the mesh, ranks train what one device trains that computes the same slices.

#include <fmt/format.h>

#include <regex>
#include <tuple>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

const Flags kSmallVit{"--model", "vit", "--depth", "3", "--width", "16", "--image-size", "16"};

class TensorParallelTraining : public PipelineTest {
 protected:
  void train_well(const std::string& program, const std::string& out, const Flags& flags) {
    const Outcome outcome = train(program, out, flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
};

TEST_F(TensorParallelTraining, EqualsOneDeviceThatComputesTheSlices) {
  make_data(40, 10);
  for (const Flags& model : {kSmallVit, Flags{"--model", "convnet", "--optimizer", "adam"}, Flags{"--model", "mlp"},
                             joined(kSmallVit, {"--sequence-parallel"})}) {
    for (const std::string& slices : unless_sanitized<Flags>({"2", "4"}, {"2"})) {
      const std::string name = fmt::format("{}{}-{}", model[1], model.size(), slices);
      train_well(kCh01, name + "-one", joined(model, {"--tensor-slices", slices, "--microbatches", "3"}));
      train_well(kCh08, name, joined(model, {"--mesh", "tp=" + slices, "--microbatches", "3"}));
      expect_same_weights(name, name + "-one");
    }
  }
}

TEST_F(TensorParallelTraining, InAllThreeDirectionsEqualsOneDevice) {
  make_data(48, 10);
  const Flags slices{"--tensor-slices", "2"};
  train_well(kCh01, "one-3", joined(kSmallVit, joined(slices, {"--microbatches", "3"})));
  for (const std::string schedule : {"1f1b", "gpipe", "zb-h1"}) {
    const std::string out = "tp-pp-" + schedule;
    train_well(kCh08, out, joined(kSmallVit, {"--mesh", "pp=2,tp=2", "--microbatches", "3", "--schedule", schedule}));
    expect_same_weights(out, "one-3");
    train_well(kCh08, out + "-overlap",
               joined(kSmallVit, {"--mesh", "pp=2,tp=2", "--microbatches", "3", "--schedule", schedule, "--overlap"}));
    expect_same_weights(out + "-overlap", "one-3");
  }
  train_well(
      kCh08, "recompute",
      joined(kSmallVit, {"--mesh", "pp=2,tp=2", "--microbatches", "3", "--recompute", "--rank-order", "pp-tp-dp"}));
  expect_same_weights("recompute", "one-3");
  // Two pipelines: each has half of a batch as one micro-batch, as one device has with two.
  train_well(kCh01, "one-2", joined(kSmallVit, joined(slices, {"--microbatches", "2"})));
  for (const std::string mesh : {"dp=2,tp=2", "dp=2,pp=3"}) {
    train_well(kCh08, mesh, joined(kSmallVit, joined(slices, {"--mesh", mesh})));
    expect_same_weights(mesh, "one-2");
  }
  for (const std::string mesh : {"dp=2,pp=2,tp=2", "dp=2,pp=3,tp=2"}) {
    for (const std::string schedule : {"1f1b", "gpipe", "zb-h1"}) {
      const std::string out = mesh + schedule;
      train_well(kCh08, out, joined(kSmallVit, {"--mesh", mesh, "--schedule", schedule}));
      expect_same_weights(out, "one-2");
    }
  }
  // Stages may end between the two layers of a pair.
  const Flags convnet{"--model", "convnet", "--microbatches", "2"};
  train_well(kCh01, "convnet-one", joined(convnet, slices));
  train_well(kCh08, "convnet", joined(convnet, {"--mesh", "pp=3,tp=2", "--split", "5,5,2"}));
  expect_same_weights("convnet", "convnet-one");
}

// The blocks of the norm are those of whole parameters, wherever their slices are.
TEST_F(TensorParallelTraining, ClipsByTheNormOfOneDevice) {
  make_data(48, 10);
  const Flags clipped = joined(kSmallVit, {"--clip-norm", "0.3", "--tensor-slices", "2"});
  train_well(kCh01, "free", joined(kSmallVit, {"--tensor-slices", "2", "--microbatches", "2"}));
  train_well(kCh01, "one", joined(clipped, {"--microbatches", "2"}));
  EXPECT_FALSE(bytes("one/weights.safetensors") == bytes("free/weights.safetensors"));
  for (const std::string mesh : {"dp=2,tp=2", "dp=2,pp=2", "dp=2,pp=3,tp=2"}) {
    train_well(kCh08, mesh, joined(clipped, {"--mesh", mesh}));
    expect_same_weights(mesh, "one");
  }
}

std::string losses_and_accuracies(const std::string& metrics) {
  std::string found;
  const std::regex result("\"(loss|acc|test_acc)\":[^,}]*");
  for (std::sregex_iterator at(metrics.begin(), metrics.end(), result); at != std::sregex_iterator(); ++at) {
    found += at->str() + "\n";
  }
  return found;
}

// The weights, and what the epochs say of losses and correct predictions.
TEST_F(TensorParallelTraining, WithAHeadCutByClassesEqualsOneDevice) {
  make_data(40, 10);  // ten classes
  const Flags by_classes{"--class-parallel", "--microbatches", "3"};
  const Flags vit = joined(kSmallVit, by_classes);
  struct Tested {
    std::string name;
    Flags model;
    std::vector<Flags> meshes;
  };
  const std::vector<Tested> cases{
      {"vit",
       vit,
       {{"--mesh", "tp=2"}, {"--mesh", "pp=2,tp=2", "--schedule", "zb-h1"}, {"--mesh", "pp=2,tp=2", "--recompute"}}},
      {"vit-adam", joined(vit, {"--optimizer", "adam"}), {{"--mesh", "tp=2"}}},
      {"sequence", joined(vit, {"--sequence-parallel"}), {{"--mesh", "tp=2"}, {"--mesh", "pp=3,tp=2"}}},
      {"convnet",
       joined({"--model", "convnet", "--optimizer", "adam"}, by_classes),
       {{"--mesh", "tp=2"}, {"--mesh", "pp=3,tp=2", "--split", "5,5,2"}, {"--mesh", "tp=1", "--tensor-slices", "2"}}},
      {"mlp", joined({"--model", "mlp"}, by_classes), {{"--mesh", "tp=2"}}}};
  for (const auto& [name, model, meshes] : cases) {
    train_well(kCh01, name + "-one", joined(model, {"--tensor-slices", "2"}));
    const std::string wanted = losses_and_accuracies(bytes(name + "-one/metrics.jsonl"));
    EXPECT_NE(wanted, "");
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      const std::string out = fmt::format("{}-{}", name, i);
      train_well(kCh08, out, joined(model, meshes[i]));
      expect_same_weights(out, name + "-one");
      EXPECT_EQ(losses_and_accuracies(bytes(out + "/metrics.jsonl")), wanted) << out;
    }
  }
}

TEST_F(TensorParallelTraining, GoesOnExactlyWithAnotherMeshWhereTheBatchHasTheSameParts) {
  make_data(41, 10);
  const Flags flags = joined(kSmallVit, {"--optimizer", "adam"});
  const std::vector<std::tuple<std::string, std::string, std::vector<Flags>, std::vector<Flags>>> cases{
      {"tp=2",
       "pp=2,tp=2",
       {{"tp=2"}, {"pp=2,tp=2"}, {"pp=2"}, {"tp=1"}},
       {{"dp=2"}, {"dp=2,tp=2"}, {"tp=2", "--microbatches", "2"}}},
      {"dp=2,tp=2",
       "dp=2",
       {{"dp=2"}, {"dp=2,pp=2"}, {"tp=2", "--microbatches", "2"}, {"pp=2", "--microbatches", "2"}},
       {{"tp=2"}, {"dp=4,tp=2"}}}};
  int n = 0;
  for (const auto& [first, other_mesh, equal, other] : cases) {
    const std::string half = "half-" + first;
    const std::string whole = "whole-" + first;
    train_well(kCh08, whole, joined(flags, {"--mesh", other_mesh, "--tensor-slices", "2"}));
    ASSERT_EQ(train(kCh08, half, joined(flags, {"--mesh", first}), "1").exit_code, 0);
    for (const Flags& mesh : equal) {
      const std::string out = fmt::format("resumed-{}", n++);
      const Outcome outcome = run(kCh08, joined({"--resume", half, "--out", out, "--epochs", "2", "--mesh"}, mesh));
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_TRUE(bytes(out + "/weights.safetensors") == bytes(whole + "/weights.safetensors")) << mesh[0];
    }
    for (const Flags& mesh : other) {
      const Outcome outcome = run(kCh08, joined({"--resume", half, "--epochs", "2", "--mesh"}, mesh));
      EXPECT_EQ(outcome.exit_code, 2) << mesh[0];
      EXPECT_NE(outcome.err.find("the weights would differ"), std::string::npos) << outcome.err;
    }
  }
}

TEST_F(TensorParallelTraining, ExplainsTheGroupsAndTheWeights) {
  const Outcome outcome = run(kCh08, {"--smoke", "--explain", "--mesh", "dp=2,pp=4,tp=2", "--microbatches", "4"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"16 ranks in the order tp-dp-pp", "[0, 1] [2, 3]", "[0, 4, 8, 12] [1, 5, 9, 13]",
                           "[0, 2] [1, 3] [4, 6]", "407882"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << " is not in\n" << outcome.out;
  }
}

TEST_F(TensorParallelTraining, PredictsAStepWithItsExchanges) {
  const Flags flags{"--smoke", "--explain", "--profile", "--mesh", "dp=2,pp=2,tp=2", "--microbatches", "2"};
  const auto milliseconds = [&](const std::string& link) {
    const Outcome outcome = run(kCh08, joined(flags, {"--clock", "virtual", "--link", link}));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::smatch found;
    EXPECT_TRUE(std::regex_search(outcome.out, found, std::regex("step +([0-9.]+) ms"))) << outcome.out;
    return found.empty() ? 0 : std::stod(found.str(1));
  };
  // One stage has at least four of the eight blocks. A block has four all-reduces per micro-batch, each of two messages
  // of a second; there are two micro-batches.
  EXPECT_GT(milliseconds("1s,1e18"), 64e3);
  EXPECT_LT(milliseconds("none"), 64e3);
}

// The forward's exchanges happen again before the backward's.
TEST_F(TensorParallelTraining, ExplainsTheExchangesOfRecomputation) {
  const auto backward_kib = [&](const Flags& more) {
    const Outcome outcome = run(kCh08, joined({"--smoke", "--explain", "--mesh", "pp=2,tp=2"}, more));
    std::smatch found;
    EXPECT_TRUE(std::regex_search(outcome.out, found, std::regex("  all +[0-9]+ +[0-9]+ +([0-9.]+) +([0-9.]+)")))
        << outcome.out;
    return found.empty() ? std::pair(0.0, 0.0) : std::pair(std::stod(found.str(1)), std::stod(found.str(2)));
  };
  const auto [forward, backward] = backward_kib({});
  EXPECT_EQ(backward_kib({"--recompute"}), std::pair(forward, backward + forward));
}

TEST_F(TensorParallelTraining, WarnsOfGroupsThatAreNotOnOneNode) {
  const Flags flags{"--smoke", "--explain", "--mesh", "dp=2,tp=2",
                    "--clock", "virtual",   "--link", "inner=nvlink4,outer=ethernet100,per-node=2"};
  const std::string warning = "tensor-parallel ranks [0, 2] are not on one node";
  const Outcome slow = run(kCh08, joined(flags, {"--rank-order", "dp-tp-pp"}));
  EXPECT_NE(slow.out.find(warning), std::string::npos) << slow.out;
  const Outcome fast = run(kCh08, joined(flags, {"--rank-order", "tp-dp-pp"}));
  EXPECT_EQ(fast.exit_code, 0) << fast.err;
  EXPECT_EQ(fast.out.find("not on one node"), std::string::npos) << fast.out;
}

TEST_F(TensorParallelTraining, RefusesWhatCannotBeShared) {
  const std::vector<std::pair<Flags, std::vector<std::string>>> cases{
      {{"--mesh", "tp=3"}, {"--mesh tp=3 or --tensor-slices 3: ", "heads", "3 ranks", "4"}},
      {{"--mesh", "pp=2,tp=2", "--chunks", "2"}, {"expected 1 chunk, got 2", "give --schedule interleaved, "}},
      {{"--mesh", "tp=3", "--model", "convnet"}, {"channels", "3 ranks", "16"}},
      {{"--model", "resnet18"}, {"resnet18", "vit"}},
      {{"--mesh", "dp=2,tp=2", "--ranks", "3"}, {"--mesh dp=2,tp=2", "expected a mesh of 3 ranks, got 4"}},
      {{"--mesh", "tp=2", "--tensor-slices", "4"}, {"--tensor-slices 4", "got 2"}},
      {{"--model", "convnet", "--sequence-parallel"}, {"--sequence-parallel", "vit"}},
      {{"--rank-order", "tp-pp"}, {"--rank-order", "tp-dp-pp"}},
      {{"--overlap", "--mesh", "tp=1"}, {"--overlap", "tensor parallelism"}},
      {{"--overlap", "--sequence-parallel"}, {"--overlap", "--sequence-parallel"}},
      {{"--clock", "virtual", "--link", "inner=nvlink4,outer=ethernet100"}, {"--link", "per-node=RANKS"}},
      {{"--clock", "virtual", "--link", "inner=ethernet100,outer=nvlink4,per-node=2"}, {"--link", "exchange inner"}},
      {{"--clock", "virtual", "--link", "inner=nvlink4,outer=ethernet100,per-node=0"}, {"--link", "per node", "0"}},
      {{"--class-parallel", "--mesh", "tp=4"}, {"expected a number of classes that 4 ranks can share", "got 10"}},
      {{"--class-parallel", "--mesh", "tp=2", "--head", "softmax"}, {"softmax", "--class-parallel"}},
      {{"--class-parallel", "--mesh", "tp=1"}, {"--class-parallel", "two or more slices"}},
  };
  for (const auto& [flags, texts] : cases) {
    expect_refused(kCh08, joined({"--smoke"}, flags), texts);
  }
  expect_refused(kCh06, {"--smoke", "--mesh", "dp=2,tp=2"}, {"--mesh", "ch08_tensor_parallel"});
  expect_refused(kCh01, {"--smoke", "--sequence-parallel"}, {"--sequence-parallel", "two or more slices"});
}

}  // namespace
}  // namespace stagecoach::test
