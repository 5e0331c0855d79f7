/// @file
/// Chapter 9 as its users run it: whatever is sharded, ranks learn what those of chapter 6 learn.

#include <fmt/format.h>

#include <regex>

#include "tests/chapters/program.h"

namespace stagecoach::test {
namespace {

const std::string kCh09 = program_path("ch09_sharded_data_parallel");
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

TEST_F(ShardedChapter, RefusesWhatItCannotDo) {
  const auto refuses = [&](Arguments flags, const std::string& text) {
    flags.insert(flags.begin(), "--smoke");
    const Outcome outcome = run(kCh09, flags);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  };
  refuses({"--out", "run"}, "--out: this chapter's weights are on no rank as a whole");
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
