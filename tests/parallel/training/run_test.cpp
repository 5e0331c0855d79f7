/// @file
/// A run: what it measures when it goes on with fewer ranks.

#include "parallel/training/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "datasets/generated.h"
#include "datasets/loader.h"
#include "nn/layers.h"
#include "nn/optimizer.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "tests/support/files.h"

namespace stagecoach::test {
namespace {

constexpr int kSteps = 20;

/// Seconds that this thread has computed.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void compute_for_a_moment() {
  constexpr double kSeconds = 2e-3;
  for (const double end = thread_seconds() + kSeconds; thread_seconds() < end;) {
  }
}

/// A loader of batches that have a size and no images.
class EmptyBatches {
 public:
  static std::int64_t batch_count() { return kSteps; }
  static double waited() { return 0; }
  void start_epoch(std::int64_t /*epoch*/, std::int64_t first_batch = 0) { next_ = first_batch; }
  std::optional<Batch> next() {
    return next_++ < kSteps ? std::optional(Batch{.inputs = {}, .targets = {}, .global_size = 1}) : std::nullopt;
  }

 private:
  std::int64_t next_ = 0;
};

/// An epoch in which rank 0 works and the others wait for it. A stop is asked for in step `stop`.
void train(const RunOptions& options, int ranks, int stop) {
  const TrainTest data = generate({.train = kSteps * options.batch_size, .test = 1});
  launch({.ranks = ranks, .clock = ClockKind::virtual_time}, [&](Rank& rank) {
    Run run(options, rank.comm, {.layers = {{"fc", 0}}});
    Sequential model;
    if (rank.index == 0) {
      model.add("fc", std::make_shared<Linear>(2, 2));
      model.materialize(1, rank.device);
    }
    const auto optimizer = make_optimizer(OptimizerKind::sgd, model.named_parameters(), 0.1);
    run.set_up_checkpoints(data, model, *optimizer);
    EmptyBatches batches;
    for (Epoch& epoch : run.epochs()) {
      for ([[maybe_unused]] const Batch& batch : epoch.training_batches(batches)) {
        if (rank.index == 0) {
          compute_for_a_moment();
          if (epoch.steps_done() == stop) {
            std::raise(SIGINT);
          }
        }
        rank.comm.barrier();
      }
    }
  });
}

TEST(Run, IdleCountsTheRanksThatThereWere) {
  const TemporaryFolder folder;
  RunOptions options{.out = folder.file("run"), .epochs = 1};
  EXPECT_THROW(train(options, 4, 7), Interrupted);
  options.resume = options.out;
  train(options, 1, kSteps);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, SIG_DFL);
  }
  const auto metrics = nlohmann::json::parse(read_bytes(folder.path() / "run/metrics.jsonl"));
  const double idle = metrics["idle"].get<double>();
  // In the first 8 to 10 steps 3 of 4 ranks waited, in the others nobody: 30 / (40 + 10), or less.
  EXPECT_GT(idle, 0.5);
  EXPECT_LT(idle, 0.75);
}

/// Returns the metrics of an epoch whose test adds 20 losses, or none.
nlohmann::json tested(const std::string& out, bool has_losses) {
  Run run({.out = out, .labels = 0}, Device{});
  Sequential model;
  model.add("fc", std::make_shared<Linear>(2, 2)).materialize(1);
  Sgd optimizer(model.named_parameters());
  run.set_up_checkpoints(generate({.train = kSteps, .test = 1}), model, optimizer);
  EmptyBatches batches;
  double loss = 0;
  for (Epoch& epoch : run.epochs()) {
    for ([[maybe_unused]] const Batch& batch : epoch.training_batches(batches)) {
    }
    for ([[maybe_unused]] const Batch& batch : epoch.test_batches(batches)) {
      if (has_losses) {
        epoch.test_sums().add_loss(++loss);
      }
    }
  }
  return nlohmann::json::parse(read_bytes(out + "/metrics.jsonl"));
}

TEST(Run, RecordsTheMeanLossOfTheTest) {
  const TemporaryFolder folder;
  EXPECT_EQ(tested(folder.file("with"), true)["test_loss"], (1 + kSteps) / 2.0);
  EXPECT_FALSE(tested(folder.file("without"), false).contains("test_loss"));
}

}  // namespace
}  // namespace stagecoach::test
