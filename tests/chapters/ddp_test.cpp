/// @file
/// Chapter 6 as its users run it: whatever the mode, the buckets and the mesh, ranks train what one device trains.

#include <fmt/format.h>

#include <set>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

const std::string& kDdp = kCh06;
const std::vector<std::string> kModes{"single", "parameter", "buckets", "central"};

/// Buckets that convnet fills several of; its gradients have 242 KiB.
const Flags kSmallBuckets{"--first-bucket-size", "4KiB", "--bucket-size", "16KiB"};

Flags flags_of(const std::string& mode) {
  return joined({"--mode", mode}, mode == "buckets" ? kSmallBuckets : Flags{});
}

class Ddp : public PipelineTest {
 protected:
  /// Trains with chapter 6 and checks that it went well.
  void ddp(const std::string& out, const Flags& flags) {
    const Outcome outcome = train(kDdp, out, flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  }
};

// One device takes the shards as micro-batches. The last batch has nine images: some ranks get two, some one.
TEST_F(Ddp, EveryModeEqualsOneDeviceByteForByte) {
  make_ragged_data();
  for (const std::string& ranks : unless_sanitized<Flags>({"1", "2", "3", "4", "8"}, {"1", "3"})) {
    const std::string one = "one-" + ranks;
    ASSERT_EQ(train(kCh01, one, {"--microbatches", ranks}).exit_code, 0);
    for (const std::string& mode : kModes) {
      const std::string out = mode + "-" + ranks;
      ddp(out, joined(flags_of(mode), {"--ranks", ranks}));
      expect_same_weights(out, one);
    }
  }
}

TEST_F(Ddp, BucketsOfAnySizeTrainTheSame) {
  make_ragged_data();
  ddp("single", {"--mode", "single"});
  for (const std::string size : {"1", "64KiB", "25MiB", "1TiB"}) {
    ddp("bucket-" + size, {"--first-bucket-size", size, "--bucket-size", size, "--find-unused"});
    expect_same_weights("bucket-" + size, "single");
  }
  ddp("threads", joined(kSmallBuckets, {"--threads", "2"}));
  expect_same_weights("threads", "single");
}

TEST_F(Ddp, CompressionTrainsSomethingElse) {
  make_data(64, 16);
  ddp("none", kSmallBuckets);
  ddp("half", joined(kSmallBuckets, {"--compress", "half"}));
  EXPECT_FALSE(bytes("half/weights.safetensors") == bytes("none/weights.safetensors"));
  EXPECT_NEAR(metrics("half").back()["loss"].get<double>(), metrics("none").back()["loss"].get<double>(), 0.05);
}

TEST_F(Ddp, BatchNormNeedsImagesOnEachRank) {
  make_data(13, 4);
  const Flags resnet{"--data", "data", "--model", "resnet18", "--image-size", "8", "--epochs", "1"};
  expect_refused(kDdp, joined(resnet, {"--batch-size", "12"}), {"1 images for 2 ranks", "--sync-batch-norm"});
  ASSERT_EQ(run(kCh01, joined(resnet, {"--batch-size", "13", "--out", "one"})).exit_code, 0);
  ASSERT_EQ(run(kDdp, joined(resnet, {"--batch-size", "13", "--sync-batch-norm", "--out", "sync"})).exit_code, 0);
  EXPECT_NEAR(metrics("sync")[0]["loss"].get<double>(), metrics("one")[0]["loss"].get<double>(), 1e-5);
}

// An epoch is one step here, and the program compares the replicas' weights after each: --epochs is the count of steps.
TEST_F(Ddp, ReplicasAreEqualAfterEveryStep) {
  make_data(30, 10);
  for (const std::string& ranks : unless_sanitized<Flags>({"2", "3", "8"}, {"3"})) {
    for (const std::string& mode : kModes) {
      const std::string out = mode + ranks;
      ASSERT_EQ(train(kDdp, out, joined(flags_of(mode), {"--ranks", ranks}), "5").exit_code, 0);
      EXPECT_EQ(metrics(out).size(), 5U);
      expect_same_weights(out, "single" + ranks);
    }
  }
}

TEST_F(Ddp, RanksWithoutImagesTakePart) {
  make_data(33, 3);  // a last batch of one
  ASSERT_EQ(train(kCh01, "one", {"--microbatches", "4"}).exit_code, 0);
  for (const std::string& mode : kModes) {
    ddp(mode, joined(flags_of(mode), {"--ranks", "4"}));
    expect_same_weights(mode, "one");
  }
  ddp("mesh", {"--mesh", "dp=4,pp=2"});
  expect_same_weights("mesh", "one");
}

TEST_F(Ddp, PipelinesSideBySideEqualReplicas) {
  make_ragged_data();
  ASSERT_EQ(train(kCh01, "one", {"--microbatches", "3"}).exit_code, 0);
  ddp("row", {"--mesh", "dp=1,pp=4", "--microbatches", "3"});
  expect_same_weights("row", "one");
  ddp("replicas", {"--ranks", "2", "--microbatches", "3"});
  for (const std::string mode : {"single", "parameter", "central"}) {
    ddp(mode, {"--ranks", "2", "--microbatches", "3", "--mode", mode});
    expect_same_weights(mode, "replicas");
  }
  for (const std::string schedule : {"1f1b", "gpipe", "zb-h1"}) {
    ddp("mesh-" + schedule, {"--mesh", "dp=2,pp=2", "--microbatches", "3", "--schedule", schedule, "--split", "3,9"});
    expect_same_weights("mesh-" + schedule, "replicas");
  }
  EXPECT_EQ(metrics("mesh-1f1b").back()["peak_bytes"].size(), 4U);
  // Several stages per rank, each with a reduction of its own where the schedule has it.
  const Flags chunked{"--mesh", "dp=2,pp=2", "--microbatches", "3", "--split", "3,3,3,3"};
  for (const Flags& schedule : {Flags{"interleaved", "--group", "3"}, {"foldx_aiao"}, {"zbv"}}) {
    ddp("mesh-" + schedule[0], joined(joined(chunked, {"--schedule"}), schedule));
    expect_same_weights("mesh-" + schedule[0], "replicas");
  }
}

TEST_F(Ddp, GoesOnExactly) {
  make_data(64, 16);
  const Flags mesh{"--mesh", "dp=2,pp=2", "--microbatches", "2"};
  std::vector<Flags> runs{mesh, joined(mesh, {"--compress", "half"}), joined(kSmallBuckets, {"--compress", "half"})};
  for (const std::string& mode : kModes) {
    runs.push_back(flags_of(mode));
  }
  const std::string epochs = unless_sanitized("4", "2");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(runs[i], " ")));
    const std::string whole = fmt::format("whole-{}", i);
    const std::string part = fmt::format("part-{}", i);
    const Flags flags = joined(runs[i], {"--optimizer", "adam"});
    ASSERT_EQ(train(kDdp, whole, flags, epochs).exit_code, 0);
    ASSERT_EQ(train(kDdp, part, flags, unless_sanitized("2", "1")).exit_code, 0);
    const Outcome more = run(kDdp, {"--resume", part, "--epochs", epochs});
    ASSERT_EQ(more.exit_code, 0) << more.err;
    expect_same_weights(part, whole);
  }
  expect_refused(kDdp, {"--resume", "part-2", "--epochs", "6", "--ranks", "3"}, {"--ranks differs"});
}

TEST_F(Ddp, GoesOnWithAnotherMeshWhereTheBatchHasTheSameParts) {
  make_ragged_data();
  struct Case {
    std::string name;
    Flags flags;
    std::vector<Flags> equal;
    std::vector<Flags> other;
  };
  const std::vector<Case> cases{
      {"shards",
       {"--ranks", "2"},
       {{"--mesh", "dp=2,pp=2"}, {"--ranks", "1", "--microbatches", "2"}, {"--mesh", "pp=2", "--microbatches", "2"}},
       {{"--ranks", "4"}, {"--microbatches", "2"}, {"--mesh", "dp=1,pp=2"}}},
      {"pipelines",
       {"--mesh", "dp=2,pp=2", "--microbatches", "2"},
       {{"--mesh", "dp=2"}, {"--mesh", "dp=2,pp=3", "--schedule", "gpipe"}},
       {{"--mesh", "dp=4", "--microbatches", "1"}, {"--mesh", "dp=1", "--microbatches", "4"}}},
      {"compressed",
       {"--ranks", "2", "--compress", "half"},
       {{}},
       {{"--mesh", "dp=2,pp=2"}, {"--ranks", "1", "--microbatches", "2"}}},
  };
  for (const auto& [name, flags, equal, other] : cases) {
    ASSERT_EQ(train(kDdp, name + "-whole", flags).exit_code, 0);
    ASSERT_EQ(train(kDdp, name, flags, "1").exit_code, 0);
    for (const Flags& change : equal) {
      SCOPED_TRACE(fmt::format("{}: {}", name, fmt::join(change, " ")));
      const Outcome more = run(kDdp, joined({"--resume", name, "--epochs", "2", "--out", "more"}, change));
      ASSERT_EQ(more.exit_code, 0) << more.err;
      expect_same_weights("more", name + "-whole");
    }
    for (const Flags& change : other) {
      expect_refused(kDdp, joined({"--resume", name, "--epochs", "2"}, change),
                     {name == "compressed" ? "--ranks differs" : "the weights would differ"});
    }
  }
}

TEST_F(Ddp, ChangesModeWhenItGoesOn) {
  make_data(64, 16);
  ASSERT_EQ(train(kDdp, "whole", {"--mode", "single"}, "4").exit_code, 0);
  ASSERT_EQ(train(kDdp, "part", {"--mode", "central"}, "2").exit_code, 0);
  const Outcome more = run(kDdp, {"--resume", "part", "--epochs", "4", "--mode", "buckets"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  expect_same_weights("part", "whole");
}

TEST_F(Ddp, SavesWhenItIsInterrupted) {
  make_data(64, 16);
  const std::vector<Flags> runs{
      flags_of("buckets"), flags_of("central"), {"--mesh", "dp=2,pp=2"}, {"--compress", "half"}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(runs[i][1]);
    const Flags flags = joined(runs[i], {"--data", "data", "--batch-size", "32"});
    const std::string stopped = fmt::format("stopped-{}", i);
    const std::string whole = fmt::format("whole-{}", i);
    const Outcome interrupted = interrupt(kDdp, joined(flags, {"--epochs", "4000", "--out", stopped}));
    ASSERT_EQ(interrupted.exit_code, 130);
    const auto done = std::to_string(metrics(stopped).back()["epoch"].get<int>() + 2);
    expect_went_on(interrupted, run(kDdp, {"--resume", stopped, "--epochs", done}));
    ASSERT_EQ(run(kDdp, joined(flags, {"--epochs", done, "--out", whole})).exit_code, 0);
    expect_same_weights(stopped, whole);
  }
}

TEST_F(Ddp, TellsWhatTravelsBesideTheBackward) {
  make_data(128, 16);
  ddp("buckets", {"--ranks", "4", "--clock", "virtual", "--link", "ethernet100", "--first-bucket-size", "4KiB",
                  "--bucket-size", "16KiB"});
  ddp("single", {"--ranks", "4", "--clock", "virtual", "--link", "ethernet100", "--mode", "single"});
  const Json epoch = metrics("buckets").back();
  EXPECT_GT(epoch["overlap"].get<double>(), 0.2);
  EXPECT_EQ(metrics("single").back()["overlap"].get<double>(), 0);
  // Its own times and the link's: within a factor, as ranks also wait for the slowest of each step.
  EXPECT_GT(epoch["predicted_seconds"].get<double>(), 0.3 * epoch["seconds"].get<double>());
  EXPECT_LT(epoch["predicted_seconds"].get<double>(), 1.2 * epoch["seconds"].get<double>());
  EXPECT_GT(metrics("single").back()["predicted_idle"].get<double>(), 0);
  std::set<int> tracks;
  const Json trace = Json::parse(bytes("buckets/trace.json"));
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "reduce bucket") {
      tracks.insert(event["tid"].get<int>());
    }
  }
  EXPECT_EQ(tracks, (std::set<int>{1001, 1002, 1003, 1004}));
}

TEST_F(Ddp, ExplainsTheModes) {
  const Outcome units = run(kDdp, {"--smoke", "--explain", "--ranks", "8", "--out", "units"});
  ASSERT_EQ(units.exit_code, 0) << units.err;
  for (const char* text : {"single", "central", "Bucket sizes", "best: 16 KiB", "rank by rank"}) {
    EXPECT_NE(units.out.find(text), std::string::npos) << text;
  }
  const Json prediction = Json::parse(bytes("units/prediction.json"));
  EXPECT_EQ(prediction["modes"]["single"]["step_seconds"], 4.0);  // 1 + 2 + 1
  EXPECT_EQ(prediction["modes"]["single"]["idle"], 0.25);
  // The ring's 14 steps take 1, of that 0.05 for latency, and carry an eighth of the gradients each. Central: 7 times
  // all gradients to the owner, and a tree of 3 levels back.
  EXPECT_NEAR(prediction["modes"]["parameter"]["step_seconds"], 3.22941, 1e-5);
  EXPECT_NEAR(prediction["modes"]["central"]["step_seconds"], 3 + 10 * (0.05 / 14 + 0.95 * 8 / 14), 1e-5);
  EXPECT_EQ(prediction["peak_activations"].size(), 8U);
  EXPECT_NE(bytes("units/timelines.svg").find("</svg>"), std::string::npos);
  const Outcome measured =
      run(kDdp, {"--smoke", "--explain", "--profile", "--ranks", "4", "--link", "ethernet100", "--clock", "virtual"});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NE(measured.out.find("with the times that the model takes here"), std::string::npos);
  const Outcome mesh = run(kDdp, {"--smoke", "--explain", "--mesh", "dp=2,pp=2", "--microbatches", "4"});
  ASSERT_EQ(mesh.exit_code, 0) << mesh.err;
  EXPECT_NE(mesh.out.find("32 images in 4 micro-batches, 2 stages on 2 ranks"), std::string::npos) << mesh.out;
}

TEST_F(Ddp, BadSettingsAreRefused) {
  const std::vector<std::pair<Flags, std::vector<std::string>>> wrong{
      {{"--mesh", "dp=2"}, {}},
      {{"--mesh", "dp=2,pp=0"}, {"--mesh: 'dp=2,pp=0' is not a mesh: expected", "dp=2,pp=2"}},
      {{"--mesh", "dp=2,qq=1"}, {"--mesh"}},
      {{"--mesh", "dp=2,"}, {"--mesh"}},
      {{"--mesh", "dp=2,dp=3"}, {"--mesh"}},
      {{"--mesh", "dp=20,pp=10"}, {"--ranks 200", "at most 128 ranks can train here"}},
      {{"--mesh", "dp=2,pp=2", "--find-unused"}, {"--find-unused"}},
      {{"--balance", "params"}, {"--balance", "--mesh"}},
      {{"--bucket-size", "-1"}, {"--bucket-size", "from 1 to", "got '-1'"}},
      {{"--mesh", "dp=2,pp=2", "--ranks", "3"}, {"expected a mesh of 3 ranks, got 4", "--ranks 4"}},
      {{"--mesh", "dp=2,pp=2", "--mode", "central"}, {"--mesh", "--mode central"}},
      {{"--mode", "single", "--find-unused"}, {"--find-unused", "--mode buckets"}},
      {{"--mode", "parameter", "--bucket-size", "1KiB"}, {"--bucket-size", "--mode buckets"}},
      {{"--mode", "central", "--compress", "half"}, {"--compress", "--mode buckets"}},
      {{"--mode", "nothing"}, {"--mode"}},
      {{"--split", "3,9"}, {"--split", "--mesh"}},
      {{"--recompute"}, {"--recompute", "--mesh"}},
      {{"--schedule", "gpipe"}, {"--schedule", "--mesh"}},
      {{"--bucket-size", "0"}, {"--bucket-size", "from 1 to", "got '0'"}},
      {{"--bucket-size", "large"}, {"--bucket-size"}},
      {{"--chunks", "2"}, {"--chunks", "--mesh"}},
      {{"--receives", "soon"}, {"--receives", "at-use, ahead"}},
      {{"--sync-batch-norm", "--microbatches", "2"}, {"--sync-batch-norm"}},
  };
  for (const auto& [flags, parts] : wrong) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(flags, " ")));
    if (parts.empty()) {
      EXPECT_EQ(run(kDdp, joined({"--smoke", "--explain"}, flags)).exit_code, 0);
    } else {
      expect_refused(kDdp, joined({"--smoke"}, flags), parts);
    }
  }
  expect_refused(kCh03, {"--mode", "single"}, {"--mode", "chapter 6"});
}

}  // namespace
}  // namespace stagecoach::test
