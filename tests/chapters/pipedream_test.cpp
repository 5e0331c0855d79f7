/// @file
/// Chapter 4 as its users run it. That it trains what its policies promise is shown in tests/parallel.

#include <fmt/format.h>

#include <algorithm>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;
const std::string& kPipedream = kCh04;

class PipedreamProgram : public PipelineTest {
 protected:
  Outcome pipedream(const std::string& out, const Flags& more, const std::string& epochs = "2") {
    return train(kPipedream, out, more, epochs);
  }
  void refuse(const Flags& flags, const std::vector<std::string>& parts) { expect_refused(kPipedream, flags, parts); }
};

TEST_F(PipedreamProgram, FlushTrainsWhatOneDeviceTrains) {
  make_ragged_data();
  ASSERT_EQ(train(kCh01, "one", {"--microbatches", "4"}).exit_code, 0);
  const Flags flush{"--versions", "flush", "--microbatches", "4"};
  for (const Flags& more : {Flags{"--ranks", "3", "--balance", "layers"}, Flags{"--ranks", "2", "--recompute"},
                            Flags{"--ranks", "4", "--clock", "virtual", "--link", "pcie4"},
                            Flags{"--ranks", "3", "--balance", "layers", "--schedule", "by-hand"},
                            Flags{"--ranks", "6", "--recompute", "--schedule", "by-hand"}}) {
    const Outcome outcome = pipedream("flush", joined(flush, more));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    expect_same_training("flush", "one");
  }
}

TEST_F(PipedreamProgram, EqualSplitsTrainTheSameWhateverTheClock) {
  make_data(200, 40);
  for (const std::string versions : {"stash", "vertical", "2bw"}) {
    const Flags flags{"--versions", versions, "--ranks", "3", "--split", "4,4,4"};
    const Flags with_clock = joined(flags, {"--clock", "virtual", "--link", "ethernet100"});
    ASSERT_EQ(pipedream(versions, flags).exit_code, 0);
    ASSERT_EQ(pipedream(versions + "-virtual", with_clock).exit_code, 0);
    expect_same_training(versions + "-virtual", versions);
  }
  EXPECT_FALSE(bytes("stash/weights.safetensors") == bytes("vertical/weights.safetensors"));
}

TEST_F(PipedreamProgram, WritesVersionsAndPredictionsBesideTheEpochs) {
  make_data(640, 32);
  ASSERT_EQ(pipedream("run", {"--ranks", "3", "--balance", "layers", "--clock", "virtual"}).exit_code, 0);
  const Json config = Json::parse(bytes("run/config.json"));
  EXPECT_EQ(config["split"], "4,4,4");
  EXPECT_EQ(config["replicas"], "1,1,1");
  for (const Json& epoch : metrics("run")) {
    EXPECT_EQ(epoch["versions"], (std::vector{3, 2, 1}));
    // If the busiest rank is never idle, the two are sums of the same terms, which may be rounded differently.
    EXPECT_GE(epoch["predicted_seconds"].get<double>(), (1 - 1e-12) * epoch["busiest_seconds"].get<double>());
    EXPECT_LE(epoch["replayed_seconds"], 1.001 * epoch["seconds"].get<double>());
    EXPECT_EQ(epoch["peak_bytes"].size(), 3U);
  }
  const Json trace = Json::parse(bytes("run/trace.json"));
  EXPECT_TRUE(std::any_of(trace["traceEvents"].begin(), trace["traceEvents"].end(), [](const Json& event) {
    return event["name"] == "2U0" && event["args"]["operation"] == "optimizer" && event["tid"] == 3;
  }));
}

TEST_F(PipedreamProgram, ExplainShowsScheduleLedgerAndMemory) {
  const Outcome outcome = run(kPipedream, {"--smoke", "--ranks", "2", "--balance", "layers", "--explain", "--ledger",
                                           "--profile", "--out", "plan"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text :
       {"0F0,0F1,0B0,0U0,0F2", "Ledger", "delays          1, 0 updates", "versions        2, 1", "per version"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << "'" << text << "' is not in: " << outcome.out;
  }
  EXPECT_EQ(bytes("plan/ledger.csv").substr(0, 28), "rank,action,version\n0,0F0,0\n");
  EXPECT_NE(bytes("plan/schedule.svg").find("<title>version 1</title>"), std::string::npos);
  const Json prediction = Json::parse(bytes("plan/prediction.json"));
  EXPECT_EQ(prediction["peak_activations"], (std::vector{2, 1}));
  EXPECT_FALSE(fs::exists(folder() / "plan/metrics.jsonl"));
}

TEST_F(PipedreamProgram, ReplicasTrainWithAnyNumberOfBatches) {
  make_data(7 * 32 + 5, 40);  // 8 batches: not a multiple of 3
  for (const std::string replicas : {"2,1", "2,2,1", "3,1"}) {
    const Outcome outcome = pipedream(replicas, {"--replicas", replicas, "--balance", "layers", "--clock", "virtual"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(metrics(replicas).size(), 2U);
    const Json config = Json::parse(bytes(replicas + "/config.json"));
    EXPECT_EQ(config["ranks"], replicas == "2,1" ? 3 : replicas == "3,1" ? 4 : 5);
    ASSERT_EQ(pipedream(replicas + "-resumed", {"--replicas", replicas, "--balance", "layers"}, "1").exit_code, 0);
    ASSERT_EQ(run(kPipedream, {"--resume", replicas + "-resumed", "--epochs", "2"}).exit_code, 0);
    expect_same_training(replicas + "-resumed", replicas);
  }
  for (const char* versions : {"flush", "2bw"}) {  // in as many micro-batches as the replicas can share
    EXPECT_EQ(pipedream(versions, {"--replicas", "2,1", "--versions", versions}, "1").exit_code, 0);
  }
}

TEST_F(PipedreamProgram, ThePartitionerReadsAProfile) {
  make_data(96, 32);
  const Flags flags{"--data", "data", "--batch-size", "32", "--balance", "pipedream"};
  const auto with = [&](const Flags& more) { return joined(flags, more); };
  ASSERT_EQ(run(kPipedream, with({"--ranks", "3", "--epochs", "1", "--profile", "--out", "run"})).exit_code, 0);
  const Json config = Json::parse(bytes("run/config.json"));
  const Flags file{"--profile-file", "run/profile.json"};
  // The same costs lead to the same stages, and serve for other ranks too.
  const Outcome again = run(kPipedream, joined(with({"--ranks", "3", "--explain"}), file));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.out.find(fmt::format("--split {} --replicas {}: ", config["split"].get<std::string>(),
                                       config["replicas"].get<std::string>())),
            std::string::npos)
      << again.out;
  EXPECT_NE(again.out.find("with the times in run/profile.json"), std::string::npos) << again.out;
  EXPECT_EQ(run(kPipedream, joined(with({"--ranks", "2", "--epochs", "1"}), file)).exit_code, 0);
  refuse(joined({"--resume", "run", "--epochs", "2"}, file), {"stages are given", "leave out the flag"});
  refuse(with({"--split", "5,6,1"}), {"leave out --split"});
}

TEST_F(PipedreamProgram, NoneIsRefusedUnlessTheCheckIsSwitchedOff) {
  make_data(200, 32);
  const Flags none{"--versions", "none", "--ranks", "3", "--balance", "layers"};
  const Outcome refused = pipedream("none", none, "1");
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_NE(refused.err.find("was modified after the forward"), std::string::npos) << refused.err;
  EXPECT_NE(refused.out.find("--no-version-check"), std::string::npos) << refused.out;
  ASSERT_EQ(pipedream("unchecked", joined(none, {"--no-version-check"})).exit_code, 0);
  EXPECT_EQ(run(kPipedream, {"--resume", "unchecked", "--epochs", "3"}).exit_code, 0) << "the check stays off";
  ASSERT_EQ(pipedream("stash", {"--ranks", "3", "--balance", "layers"}).exit_code, 0);
  EXPECT_FALSE(bytes("unchecked/weights.safetensors") == bytes("stash/weights.safetensors"));
}

TEST_F(PipedreamProgram, BadSettingsAreRefusedWithWhatCanBe) {
  refuse({"--smoke", "--versions", "2bw", "--ranks", "4", "--microbatches", "3"},
         {"at least 4 micro-batches per batch"});
  refuse({"--smoke", "--versions", "flush", "--replicas", "2,1", "--microbatches", "3"}, {"--microbatches 2 or 4"});
  refuse({"--smoke", "--replicas", "2,1", "--ranks", "4"}, {"expected replicas for 4 ranks, got 3", "--ranks 3"});
  refuse({"--smoke", "--replicas", "2,x"}, {"ranks per stage, such as 2,1,1"});
  refuse({"--smoke", "--replicas", "2,1", "--split", "4,4,4"}, {"expected 2 stages", "got 3"});
  refuse({"--smoke", "--ranks", "13", "--balance", "layers"}, {"at most 12 stages"});
  refuse({"--smoke", "--versions", "both"}, {"stash"});
  refuse({"--smoke", "--schedule", "by-hand"}, {"--versions stash", "give --versions flush"});
  refuse({"--smoke", "--schedule", "by-hand", "--versions", "flush", "--replicas", "2,1", "--microbatches", "2"},
         {"one rank per stage", "--replicas 2,1"});
  refuse({"--smoke", "--schedule", "by-hand", "--versions", "flush", "--receives", "2"}, {"use --schedule 1f1b"});
  refuse({"--smoke", "--schedule", "gpipe"}, {"expected one of 1f1b, by-hand for ch04_pipedream"});
  refuse({"--smoke", "--no-version-check"}, {"or use --versions none"});
  refuse({"--smoke", "--versions", "none", "--recompute", "--no-version-check"}, {"leave out --recompute"});
  refuse({"--smoke", "--lr-warmup", "-1"}, {"lr-warmup"});
  refuse({"--smoke", "--clip-norm", "1"}, {"--clip-norm", "all stages", "--versions flush"});
  expect_refused(kCh03, {"--smoke", "--versions", "stash"}, {"chapter 4"});
  expect_refused(kCh05, {"--smoke", "--balance", "pipedream"}, {"balance"});
}

TEST_F(PipedreamProgram, LearningRatesOfDelayedStagesCanBeLower) {
  make_data(200, 32);
  const Flags flags{"--ranks", "3", "--balance", "layers"};
  ASSERT_EQ(pipedream("plain", flags, "1").exit_code, 0);
  for (const std::string flag : {"--lr-warmup", "--lr-discount"}) {
    ASSERT_EQ(pipedream(flag.substr(2), joined(flags, {flag, "5"}), "1").exit_code, 0);
    EXPECT_FALSE(bytes(flag.substr(2) + "/weights.safetensors") == bytes("plain/weights.safetensors")) << flag;
  }
}

// Each epoch ends with an empty pipeline, so that to go on from there is to go on as if nothing had happened.
TEST_F(PipedreamProgram, AResumedRunEqualsAnUninterruptedOne) {
  make_data(200, 40);
  const std::string epochs = unless_sanitized("4", "2");
  for (const std::string versions : {"stash", "vertical", "2bw"}) {
    const Flags flags{"--versions",  versions, "--ranks",     "3", "--balance",     "layers",
                      "--optimizer", "adam",   "--lr-warmup", "9", "--lr-discount", "12"};
    ASSERT_EQ(pipedream("whole-" + versions, flags, epochs).exit_code, 0);
    ASSERT_EQ(pipedream(versions, flags, unless_sanitized("2", "1")).exit_code, 0);
    const Outcome resumed = run(kPipedream, {"--resume", versions, "--epochs", epochs});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    expect_same_training(versions, "whole-" + versions);
  }
  refuse({"--resume", "stash", "--epochs", "5", "--versions", "vertical"}, {"--versions differs"});
  refuse({"--resume", "stash", "--epochs", "5", "--split", "3,3,6"}, {"--split differs"});
  EXPECT_EQ(run(kPipedream, {"--resume", "stash", "--epochs", "5", "--ranks", "3", "--balance", "time"}).exit_code, 0);
}

// The last batch has micro-batches of other replicas only, which rank 0 must have let in before it waits for them.
TEST_F(PipedreamProgram, EndsAnEpochWithAnyReplicas) {
  make_data(33, 20);
  for (const Flags& flags : {Flags{"--replicas", "3,1,1,1", "--microbatches", "4", "--batch-size", "4"},
                             Flags{"--replicas", "5,1", "--microbatches", "3", "--batch-size", "4"},
                             Flags{"--replicas", "3", "--microbatches", "2", "--batch-size", "3"}}) {
    const Outcome outcome =
        run(kPipedream, joined({"--data", "data", "--balance", "layers", "--epochs", "2", "--timeout", "10"}, flags));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

// With few batches per epoch all may begin at once, and the stop comes after the last of them.
TEST_F(PipedreamProgram, AnInterruptBehindTheLastBatchCanBeResumed) {
  make_data(40, 100);
  const Flags flags{"--data",  "data", "--batch-size", "8",   "--epochs", "4000",        "--out",   "stopped",
                    "--ranks", "2",    "--split",      "6,6", "--link",   "ethernet100", "--clock", "virtual"};
  for (int round = 0; round < 3; ++round) {
    fs::remove_all(folder() / "stopped");
    const Outcome stopped = interrupt(kPipedream, flags);
    ASSERT_EQ(stopped.exit_code, 130);
    const std::size_t finished = metrics("stopped").size();
    expect_went_on(stopped, run(kPipedream, {"--resume", "stopped", "--epochs", std::to_string(finished + 1)}));
    EXPECT_EQ(metrics("stopped").size(), finished + 1);
  }
}

// Activations of the test are on their way for a few batches at a time only.
TEST_F(PipedreamProgram, MemoryOfTheTestDoesNotGrowWithIt) {
  // The least of three runs: a message more is alive where a rank had to wait for its core. Each posted receive may
  // hold one more, so they are posted at their use here.
  const auto peak_with = [&](int images) {
    make_data(32, images);
    double least = 1e18;
    for (int i = 0; i < 3; ++i) {
      const std::string out = fmt::format("with-{}-{}", images, i);
      EXPECT_EQ(pipedream(out, {"--split", "3,9", "--receives", "at-use"}, "1").exit_code, 0);
      least = std::min(least, metrics(out)[0]["peak_bytes"][0].get<double>());
    }
    return least;
  };
  EXPECT_LT(peak_with(unless_sanitized(4000, 1000)), 1.2 * peak_with(400));
}

// A stop lets no more batches in. With a flush after each batch that changes nothing; else it is one more drain.
TEST_F(PipedreamProgram, AnInterruptDrainsThePipelineAndSaves) {
  make_data(unless_sanitized(480, 160), 40);
  for (const Flags& kind :
       {Flags{"--versions", "flush", "--ranks", "3"},
        Flags{"--versions", "flush", "--ranks", "3", "--schedule", "by-hand"},
        Flags{"--versions", "stash", "--ranks", "4"}, Flags{"--versions", "stash", "--replicas", "3,1"}}) {
    const Flags flags = joined(kind, {"--balance", "layers", "--optimizer", "adam"});
    const Outcome stopped = interrupt(
        kPipedream, joined({"--data", "data", "--batch-size", "32", "--epochs", "4000", "--out", "stopped"}, flags));
    ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
    EXPECT_NE(stopped.out.find("Saved"), std::string::npos) << stopped.out;
    fs::remove_all(folder() / "copy");
    fs::copy(folder() / "stopped", folder() / "copy", fs::copy_options::recursive);
    const std::size_t epochs = metrics("stopped").size() + 2;
    for (const char* out : {"stopped", "copy"}) {
      expect_went_on(stopped, run(kPipedream, {"--resume", out, "--epochs", std::to_string(epochs)}));
      EXPECT_EQ(metrics(out).size(), epochs);
    }
    expect_same_training("copy", "stopped");
    if (kind[1] == "flush") {
      ASSERT_EQ(pipedream("whole", flags, std::to_string(epochs)).exit_code, 0);
      expect_same_training("stopped", "whole");
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
