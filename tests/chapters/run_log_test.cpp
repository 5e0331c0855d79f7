/// @file
/// The books of a run: what they say of a run that went on with fewer ranks.

#include "chapters/common/run_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <ctime>

#include "chapters/common/program.h"
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

/// An epoch in which rank 0 works and the others wait for it. A stop is asked for in step `stop`.
void train(const Settings& settings, int stop) {
  launch({.ranks = settings.world.ranks, .clock = ClockKind::virtual_time}, [&](Rank& rank) {
    RunLog log(settings, rank.comm, {{"fc", 0}}, 0);
    Sequential model;
    if (rank.index == 0) {
      model.add("fc", std::make_shared<Linear>(2, 2));
      model.materialize(1, rank.device);
    }
    const auto optimizer = make_optimizer(OptimizerKind::sgd, model.named_parameters(), 0.1);
    log.restore(model, *optimizer);
    log.start_epoch(kSteps);
    while (log.progress().step < kSteps) {
      if (rank.index == 0) {
        compute_for_a_moment();
        if (log.progress().step == stop) {
          std::raise(SIGINT);
        }
      }
      rank.comm.barrier();
      log.add_step(1, model, *optimizer);
    }
    log.stop_clock();
    log.finish_epoch(0, model, *optimizer);
  });
}

TEST(RunLog, IdleCountsTheRanksThatThereWere) {
  const TemporaryFolder folder;
  Settings settings{.program = "ch02_naive_model_parallel",
                    .training = {.epochs = 1},
                    .world = {.ranks = 4, .clock = ClockKind::virtual_time}};
  settings.run.out = folder.file("run");
  EXPECT_THROW(train(settings, 7), Interrupted);
  settings.world.ranks = 1;
  settings.run.resume = settings.run.out;
  train(settings, kSteps);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, SIG_DFL);
  }
  const auto metrics = nlohmann::json::parse(read_bytes(folder.path() / "run/metrics.jsonl"));
  const double idle = metrics["idle"].get<double>();
  // In the first 8 to 10 steps 3 of 4 ranks waited, in the others nobody: 30 / (40 + 10), or less.
  EXPECT_GT(idle, 0.5);
  EXPECT_LT(idle, 0.75);
}

}  // namespace
}  // namespace stagecoach::test
