/// @file
/// Chapter 9 as its users run it: whatever is sharded, ranks learn what those of chapter 6 learn.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <regex>

#include "tests/chapters/pipelines.h"

namespace stagecoach::test {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

class ShardedChapter : public ProgramTest {
 protected:
  /// Returns the losses and accuracies that a program prints, without the times.
  std::vector<std::string> results(const std::string& program, Arguments flags, const Arguments& more = {}) {
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome outcome = run(program, flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::regex epoch("Epoch: (.*), time cost: .*(test acc: [0-9.]+)");
    std::vector<std::string> found;
    for (std::sregex_iterator match(outcome.out.begin(), outcome.out.end(), epoch), end; match != end; ++match) {
      found.push_back((*match)[1].str() + ", " + (*match)[2].str());
    }
    return found;
  }
};

class ShardedRuns : public PipelineTest {};

// The last batch has nine images, the last of the test one: then some ranks have none.
TEST_F(ShardedChapter, LearnsWhatChapter6Learns) {
  make_data(41, 17);
  for (const std::string ranks : {"1", "3"}) {
    const Arguments flags{"--data",  "data", "--batch-size", "16",   "--epochs", "2",
                          "--ranks", ranks,  "--optimizer",  "adam", "--lr",     "0.005"};
    const auto wanted = results(kCh06, flags);
    ASSERT_EQ(wanted.size(), 2U);
    for (const Arguments& more : {Arguments{},
                                  {"--shard", "optimizer"},
                                  {"--shard", "gradients", "--prefetch", "0"},
                                  {"--shard", "parameters", "--no-reshard-after-forward"},
                                  {"--prefetch", "0", "--unit-layers", "5,7"},
                                  {"--by-hand"}}) {
      EXPECT_EQ(results(kCh09, flags, more), wanted) << fmt::format("{} on {} ranks", fmt::join(more, " "), ranks);
    }
  }
}

TEST_F(ShardedChapter, AccumulatesMicroBatches) {
  make_data(48, 16);
  const Arguments flags{"--data", "data", "--batch-size", "16", "--epochs", "2", "--ranks", "2", "--microbatches", "3"};
  const auto wanted = results(kCh06, flags);
  ASSERT_EQ(wanted.size(), 2U);
  EXPECT_EQ(results(kCh09, flags), wanted);
  EXPECT_EQ(results(kCh09, flags, {"--accumulation", "sharded"}).size(), 2U);
}

const std::string kShard[] = {"optimizer", "gradients", "parameters"};

// As one device does, which takes the shards as micro-batches: with clipping, too, and for uneven parts of a batch.
TEST_F(ShardedRuns, SaveTheWeightsOfOneDevice) {
  make_ragged_data();
  const Flags flags{"--optimizer", "adam", "--clip-norm", "0.5"};
  for (const std::string& ranks : unless_sanitized<Flags>({"1", "2", "3", "8"}, {"3"})) {
    ASSERT_EQ(train(kCh01, "one-" + ranks, joined(flags, {"--microbatches", ranks})).exit_code, 0);
    for (const std::string& shard : kShard) {
      const Outcome outcome = train(kCh09, shard + ranks, joined(flags, {"--ranks", ranks, "--shard", shard}));
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      expect_same_weights(shard + ranks, "one-" + ranks);
    }
  }
}

// Two copies of the weights, each on two ranks: chapter 6 would add the gradients in another order.
TEST_F(ShardedRuns, OfSeveralCopiesGoOnToo) {
  make_ragged_data();
  const Flags flags{"--optimizer", "adam", "--mesh", "dp=2,shard=2", "--clip-norm", "0.5"};
  ASSERT_EQ(train(kCh09, "whole", flags, "2").exit_code, 0);
  const Flags one_device{"--optimizer", "adam", "--clip-norm", "0.5", "--microbatches", "4", "--sum-groups", "2"};
  ASSERT_EQ(train(kCh01, "one", one_device, "2").exit_code, 0);
  expect_same_weights("whole", "one");
  ASSERT_EQ(train(kCh09, "part", flags, "1").exit_code, 0);
  const Outcome more = run(kCh09, {"--resume", "part", "--epochs", "2", "--shard", "gradients"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  expect_same_weights("part", "whole");
  expect_refused(kCh09, {"--resume", "part", "--epochs", "3", "--mesh", "shard=4"},
                 {"the weights would differ", "give --mesh dp=2,shard=2"});
  expect_refused(kCh09, {"--smoke", "--mesh", "shard=2,pp=2"}, {"this chapter has no pipelines"});
  expect_refused(kCh06, {"--smoke", "--mesh", "shard=2"}, {"this chapter has no shards; give dp and pp"});
}

TEST_F(ShardedRuns, GoOnWhateverIsSharded) {
  make_ragged_data();
  const Flags flags{"--optimizer", "adam", "--ranks", "4"};
  ASSERT_EQ(train(kCh09, "whole", flags, "2").exit_code, 0);
  for (const std::string& shard : kShard) {
    ASSERT_EQ(train(kCh09, "part", joined(flags, {"--shard", shard}), "1").exit_code, 0);
    for (const Flags& change : std::vector<Flags>{
             {"--shard", "optimizer"}, {"--ranks", "1", "--microbatches", "4"}, {"--unit-layers", "5,7"}}) {
      const Outcome more = run(kCh09, joined({"--resume", "part", "--epochs", "2", "--out", "more"}, change));
      ASSERT_EQ(more.exit_code, 0) << more.err;
      expect_same_weights("more", "whole");
    }
  }
  expect_refused(kCh09, {"--resume", "part", "--epochs", "2", "--ranks", "2"}, {"the weights would differ"});
}

TEST_F(ShardedRuns, SaveWhenTheyAreInterrupted) {
  make_data(64, 16);
  const Flags flags{"--data", "data", "--batch-size", "32", "--optimizer", "adam"};
  const Outcome interrupted = interrupt(kCh09, joined(flags, {"--epochs", "4000", "--out", "stopped"}));
  ASSERT_EQ(interrupted.exit_code, 130);
  const auto done = std::to_string(metrics("stopped").back()["epoch"].get<int>() + 2);
  expect_went_on(interrupted, run(kCh09, {"--resume", "stopped", "--epochs", done}));
  ASSERT_EQ(run(kCh09, joined(flags, {"--epochs", done, "--out", "whole"})).exit_code, 0);
  expect_same_weights("stopped", "whole");
}

// Each file has the layers of every third unit. One that is damaged, cut off or lost makes the checkpoint before count.
TEST_F(ShardedRuns, GoOnFromTheCheckpointBeforeOneWithADamagedShard) {
  make_data(64, 16);
  const Flags flags{"--optimizer", "adam", "--ranks", "3"};
  ASSERT_EQ(train(kCh09, "whole", flags, "3").exit_code, 0);
  const std::string shard = "part/checkpoints/epoch-3-step-0/shard_1.safetensors";
  const std::function<void(const std::string& good)> ways[] = {
      [&](std::string good) {
        good[good.size() - 9] ^= 1;
        write_bytes(folder() / shard, good);
      },
      [&](const std::string& good) { write_bytes(folder() / shard, good.substr(0, good.size() - 9)); },
      [&](const std::string&) { fs::remove(folder() / shard); }};
  for (const auto& damage : ways) {
    fs::remove_all(folder() / "part");
    ASSERT_EQ(train(kCh09, "part", flags, "2").exit_code, 0);
    damage(bytes(shard));
    const Outcome more = run(kCh09, {"--resume", "part", "--epochs", "3"});
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_NE(more.out.find("Skipped: cannot read '" + shard + "'"), std::string::npos) << more.out;
    expect_same_weights("part", "whole");
  }
}

TEST_F(ShardedRuns, BeginWithTheWeightsOfAFile) {
  make_data(64, 16);
  ASSERT_EQ(train(kCh01, "first", {}, "1").exit_code, 0);
  const Flags from{"--weights", "first/weights.safetensors"};
  ASSERT_EQ(train(kCh01, "one", joined(from, {"--microbatches", "3"})).exit_code, 0);
  for (const std::string& shard : kShard) {
    ASSERT_EQ(train(kCh09, shard, joined(from, {"--ranks", "3", "--shard", shard})).exit_code, 0);
    expect_same_weights(shard, "one");
  }
}

TEST_F(ShardedRuns, SendHalvesAsChapter6Does) {
  make_ragged_data();
  const Flags flags{"--ranks", "3", "--compress", "half"};
  ASSERT_EQ(train(kCh06, "buckets", flags).exit_code, 0);
  for (const std::string& shard : kShard) {
    ASSERT_EQ(train(kCh09, shard, joined(flags, {"--shard", shard})).exit_code, 0);
    expect_same_weights(shard, "buckets");
  }
}

// A forward of 2,048 tokens in 1.3 ms hides a gather of 0.1 ms, its backward a gather and a reduce-scatter. What
// remains is the first gather of a step, and the last reduction.
TEST_F(ShardedRuns, HideWhatTheyPrefetch) {
  const Flags flags{"--explain", "--clock", "modelled", "--device-model", "h100",    "--model", "vit",
                    "--depth",   "24",      "--width",  "1024",           "--heads", "16",      "--batch-size",
                    "256",       "--ranks", "8",        "--link",         "nvlink4"};
  const auto waited = [&](const std::string& units) {
    const Outcome plan = run(kCh09, joined(flags, {"--prefetch", units, "--out", "plan"}));
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    const Json step = planned_step("plan");
    return step["idle"].get<double>() * step["step_seconds"].get<double>();
  };
  EXPECT_LE(waited("1"), 0.2 * waited("0"));
}

TEST_F(ShardedRuns, WriteWhatOneDeviceWrites) {
  const Flags flags{"--smoke", "--model", "gpt", "--depth", "1", "--width", "32", "--sample", "40"};
  const auto sample = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out.substr(std::min(outcome.out.find("Sample of"), outcome.out.size()));
  };
  const std::string wanted = sample(run(kCh01, joined(flags, {"--microbatches", "2"})));
  EXPECT_NE(wanted, "");
  EXPECT_EQ(sample(run(kCh09, flags)), wanted);
}

TEST_F(ShardedChapter, RefusesWhatItCannotDo) {
  const auto refuses = [&](Arguments flags, const std::string& text) {
    flags.insert(flags.begin(), "--smoke");
    const Outcome outcome = run(kCh09, flags);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refuses({"--by-hand", "--out", "run"}, "--out: with --by-hand, a rank has a part of one long parameter");
  refuses({"--model", "gpt", "--tie-head", "--by-hand"}, "--tie-head: with --by-hand, a rank has a part");
  refuses({"--weights-except", "fc3", "--weights", "none"}, "--weights-except: this chapter does not have it yet");
  refuses({"--explain"}, "--explain: ");
  refuses({"--by-hand", "--shard", "gradients"}, "--shard: --by-hand gathers the whole model");
  refuses({"--shard", "gradients", "--no-reshard-after-forward"}, "only --shard parameters frees weights");
  refuses({"--accumulation", "sharded"}, "--accumulation: one micro-batch");
  refuses({"--unit-layers", "3,4"}, "--unit-layers");
  refuses({"--microbatches", "64"}, "--microbatches 64: all ranks need the same number of micro-batches");
  refuses({"--microbatches", "2", "--shard", "optimizer", "--accumulation", "sharded"}, "needs sharded gradients");
}

}  // namespace
}  // namespace stagecoach::test
