/// @file
/// Runs on the modelled clock. Their times and memory are computed, so they depend on nothing real, and the prediction,
/// which is computed as well, equals them.

#include <cmath>
#include <string>
#include <vector>

#include "parallel/schedule/schedule_kinds.h"
#include "tests/chapters/processes.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {
namespace {

struct ModelledRun {
  std::string program;
  int ranks;
  Flags flags;
};

const std::vector<std::string> kLinks{"nvlink4", "20us,100MB/s"};

/// Returns the flags of a short run on modelled devices.
Flags modelled_flags(const std::string& out, const std::string& link, const Flags& more,
                     const std::string& data = "data") {
  return joined({"--data", data, "--batch-size", "32", "--epochs", "2", "--clock", "modelled", "--device-model", "h200",
                 "--link", link, "--out", out},
                more);
}

class ModelledClock : public ProcessTest {
 protected:
  using ProcessTest::ProcessTest;

  /// Runs the program as threads and as processes, on a slow link, and expects the same bytes.
  void expect_bytes_of_threads(const ModelledRun& run_of) {
    SCOPED_TRACE(run_of.program + " " + (run_of.flags.empty() ? "" : run_of.flags.back()));
    const std::string ranks = std::to_string(run_of.ranks);
    const Outcome threads =
        run(run_of.program, modelled_flags("threads", kLinks.back(), joined(run_of.flags, {"--ranks", ranks})));
    ASSERT_EQ(threads.exit_code, 0) << threads.err;
    const Outcome processes =
        mpirun(run_of.ranks, run_of.program, modelled_flags("processes", kLinks.back(), run_of.flags));
    ASSERT_EQ(processes.exit_code, 0) << processes.err;
    EXPECT_EQ(bytes("threads/metrics.jsonl"), bytes("processes/metrics.jsonl"));
    EXPECT_TRUE(bytes("threads/trace.json") == bytes("processes/trace.json")) << "traces differ";  // chapter 7 has none
  }
  void expect_bytes_of_threads_everywhere() {
    make_data(96, 32);
    for (const ModelledRun& each :
         std::vector<ModelledRun>{{kCh02, 2, {}},
                                  {kCh03, 3, {"--microbatches", "4"}},
                                  {kCh03, 3, {"--microbatches", "4", "--schedule", "by-hand"}},
                                  {kCh04, 3, {"--microbatches", "4", "--versions", "stash"}},
                                  {kCh04, 3, {"--microbatches", "4", "--replicas", "2,1"}},
                                  {kCh05, 2, {"--microbatches", "4", "--chunks", "2"}},
                                  {kCh06, 2, {}},
                                  {kCh06, 4, {"--mesh", "dp=2,pp=2", "--microbatches", "2"}},
                                  {kCh07, 3, {"--form", "remote", "--splits", "4"}},
                                  {kCh08, 4, {"--mesh", "pp=2,tp=2", "--model", "vit", "--microbatches", "2"}}}) {
      expect_bytes_of_threads(each);
    }
  }
};

class ModelledClockByMpi : public ModelledClock {};
class ModelledClockByGloo : public ModelledClock {
 protected:
  ModelledClockByGloo() : ModelledClock(Launcher::torchrun) {}
};

TEST_F(ModelledClockByMpi, HasTheBytesOfThreads) { expect_bytes_of_threads_everywhere(); }
TEST_F(ModelledClockByGloo, HasTheBytesOfThreads) { expect_bytes_of_threads_everywhere(); }

class ModelledPrediction : public PipelineTest {
 protected:
  /// Expects that an epoch takes what was predicted, on each link.
  void expect_predicted(const std::string& program, const Flags& flags,
                        const std::vector<std::string>& links = kLinks) {
    for (const std::string& link : unless_sanitized(links, {links.back()})) {
      std::string all = program + " --link " + link;
      for (const std::string& flag : flags) {
        all += " " + flag;
      }
      SCOPED_TRACE(all);
      const Outcome outcome = run(program, modelled_flags("run", link, flags, data_));
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      const Json last = metrics("run").back();  // in the first epoch, buckets are laid out anew
      const double seconds = last.at("seconds");
      EXPECT_NEAR(last.at("predicted_seconds").get<double>() / seconds, 1, 1e-3);
      EXPECT_NEAR(last.at("predicted_idle").get<double>(), last.at("idle").get<double>(), 1e-3);
    }
  }
  std::string data_ = "data";
};

// The batches of 32 images are cut unevenly, and the last one has 9.
TEST_F(ModelledPrediction, IsWhatEachScheduleTakes) {
  make_data(105, 32);
  expect_predicted(kCh02, {"--ranks", "3"});
  for (const std::string& schedule : schedule_names()) {
    expect_predicted(kCh05, {"--ranks", "2", "--microbatches", "6", "--schedule", schedule});
  }
  for (const char* versions : {"stash", "vertical", "2bw", "flush"}) {
    expect_predicted(kCh04, {"--ranks", "3", "--microbatches", "6", "--versions", versions});
  }
  expect_predicted(kCh04, {"--ranks", "3", "--microbatches", "4", "--replicas", "2,1"});
}

// The last batch has 3 images, so half of its micro-batches do not exist.
TEST_F(ModelledPrediction, IsWhatALastBatchOfFewImagesTakes) {
  make_data(99, 32);
  for (const char* schedule : {"gpipe", "interleaved", "zb-h1", "zbv"}) {
    expect_predicted(kCh05, {"--ranks", "2", "--microbatches", "6", "--schedule", schedule});
  }
  for (const char* versions : {"stash", "flush"}) {
    expect_predicted(kCh04, {"--ranks", "3", "--microbatches", "6", "--versions", versions});
  }
  expect_predicted(kCh05, {"--ranks", "2", "--microbatches", "6", "--clip-norm", "0.1"});
  expect_predicted(kCh08, {"--mesh", "pp=2,tp=2", "--model", "vit", "--microbatches", "6"});
}

// Two ranks meet in each update: the first one sums the gradients of the matrix, and the last one gets its values.
TEST_F(ModelledPrediction, IsWhatATiedHeadTakes) {
  std::string text;
  for (int i = 0; i < 450; ++i) {
    text += std::to_string(i * i) + (i % 7 == 0 ? ".\n" : " ");
  }
  write_bytes(folder() / "squares.txt", text);
  data_ = "text:squares.txt";
  const Flags tied{"--model", "gpt",        "--depth",        "2", "--width",     "32",   "--heads", "2", "--context",
                   "16",      "--tie-head", "--microbatches", "4", "--optimizer", "adamw"};
  const Flags two = joined(tied, {"--ranks", "2"});
  for (const char* schedule : {"1f1b", "zb-h2", "zbv"}) {
    expect_predicted(kCh05, joined(two, {"--schedule", schedule}));
    expect_predicted(kCh05, joined(two, {"--schedule", schedule, "--clip-norm", "0.1"}));
  }
  expect_predicted(kCh04, joined(two, {"--versions", "flush"}));
  expect_predicted(kCh08, joined(tied, {"--mesh", "pp=2,tp=2"}));
}

TEST_F(ModelledPrediction, IsWhatAMeshTakes) {
  make_data(96, 32);
  for (const char* mode : {"single", "parameter", "buckets", "central"}) {
    expect_predicted(kCh06, {"--ranks", "2", "--mode", mode});
  }
  expect_predicted(kCh06, {"--mesh", "dp=2,pp=2", "--microbatches", "2"});
  expect_predicted(kCh08, {"--mesh", "tp=2", "--model", "vit"});
  for (const char* model : {"vit", "convnet"}) {
    expect_predicted(kCh08, {"--mesh", "tp=2", "--model", model, "--overlap"});
  }
  expect_predicted(kCh08, {"--mesh", "dp=2,pp=2,tp=2", "--model", "vit", "--microbatches", "2"});
}

// Of the pipelines, each has the slow link at another place; they meet where they sum gradients.
TEST_F(ModelledPrediction, IsWhatPipelinesOverUnequalLinksTake) {
  make_data(96, 32);
  const std::vector<std::string> nodes{"inner=nvlink4,outer=1ms,20MB/s,per-node=2"};
  expect_predicted(kCh06, {"--model", "vit", "--microbatches", "4", "--mesh", "dp=2,pp=3"}, nodes);
  expect_predicted(kCh08,
                   {"--microbatches", "4", "--mesh", "dp=2,pp=2,tp=2", "--rank-order", "pp-tp-dp", "--clip-norm", "1"},
                   {"inner=nvlink4,outer=ethernet100,per-node=2"});
}

// A rank with two stages sums the gradients of the first that is ready while it computes those of the other.
TEST_F(ModelledPrediction, IsWhatRanksWithSeveralStagesTake) {
  make_data(96, 32);
  for (const char* schedule : {"zbv", "interleaved"}) {
    expect_predicted(kCh06, {"--mesh", "dp=2,pp=2", "--microbatches", "4", "--schedule", schedule});
  }
}

// A bucket is full with each weight, so it matters whether the bias before or after it is in the same one.
TEST_F(ModelledPrediction, IsWhatBucketsOfFewTensorsTake) {
  make_data(96, 32);
  for (const char* model : {"mlp", "vit"}) {
    expect_predicted(kCh08,
                     {"--mesh", "dp=2,pp=2", "--model", model, "--microbatches", "2", "--bucket-size", "64KiB",
                      "--first-bucket-size", "64KiB"},
                     {"1ms,1GB/s"});
  }
}

// Of a backward in two parts, each exchanges what it computes, with nothing beside it.
TEST_F(ModelledPrediction, IsWhatTensorParallelRanksWithASplitBackwardTake) {
  make_data(96, 32);
  const Flags mesh{"--model", "vit", "--mesh", "pp=2,tp=2", "--microbatches", "4"};
  expect_predicted(kCh08, joined(mesh, {"--schedule", "zb-h1", "--sequence-parallel"}));
  expect_predicted(kCh08, joined(mesh, {"--schedule", "zbv", "--overlap", "--recompute"}));
}

// Of 33 images one is left for the last batch, and of 123 a batch of 27: more than each of three pipelines has in
// others.
TEST_F(ModelledPrediction, IsWhatRanksTakeOfWhichSomeHaveNoImages) {
  make_data(33, 32);
  for (const char* mode : {"single", "parameter", "central"}) {
    expect_predicted(kCh06, {"--ranks", "3", "--mode", mode});
  }
  make_data(123, 32);
  expect_predicted(kCh06, {"--mesh", "dp=3,pp=2", "--microbatches", "3"});
}

// Between its actions a loop by hand works too, and less for a smaller micro-batch.
TEST_F(ModelledPrediction, IsWhatALoopByHandTakes) {
  make_data(97, 32);
  expect_predicted(kCh03, {"--ranks", "2", "--microbatches", "8", "--schedule", "by-hand", "--model", "vit"});
  expect_predicted(kCh04, {"--ranks", "2", "--microbatches", "8", "--schedule", "by-hand", "--versions", "flush"});
}

// All ranks meet in each update, to sum the squares of all gradients.
TEST_F(ModelledPrediction, IsWhatAnUpdateTakesThatClipsByTheNormOfAllGradients) {
  make_data(105, 32);
  const Flags clipped{"--ranks", "3", "--microbatches", "6", "--clip-norm", "0.1"};
  expect_predicted(kCh02, {"--ranks", "3", "--clip-norm", "0.1"});
  for (const char* schedule : {"1f1b", "zb-h2", "zbv", "interleaved"}) {
    expect_predicted(kCh05, joined(clipped, {"--schedule", schedule, "--optimizer", "adam"}));
  }
  expect_predicted(kCh04, joined(clipped, {"--versions", "flush"}));
  expect_predicted(kCh04, joined(clipped, {"--versions", "flush", "--replicas", "2,1"}));
  expect_predicted(kCh06, {"--mesh", "dp=2,pp=2", "--microbatches", "2", "--clip-norm", "0.1"});
  for (const char* mesh : {"tp=2", "dp=2,pp=2,tp=2"}) {
    expect_predicted(kCh08, {"--mesh", mesh, "--model", "vit", "--microbatches", "3", "--clip-norm", "0.1"});
  }
}

// The first epoch writes a trace, whose text is gathered from all ranks.
TEST_F(ModelledPrediction, PeakMemoryIsTheSameInEveryEpoch) {
  make_data(384, 32);
  const Outcome outcome = run(kCh05, modelled_flags("run", kLinks.front(), {"--ranks", "4", "--microbatches", "8"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(metrics("run").front().at("peak_bytes"), metrics("run").back().at("peak_bytes"));
}

}  // namespace
}  // namespace stagecoach::test
