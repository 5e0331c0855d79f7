// How long the actions of a rank take, and what of their waits counts.

#include "parallel/pipeline/action_log.h"

#include <gtest/gtest.h>

#include "core/ops.h"
#include "parallel/launch/launch.h"

namespace stagecoach {
namespace {

TEST(ActionLog, AveragesOverAllRanks) {
  const World world{
      .ranks = 2, .clock = ClockKind::virtual_time, .network = Link{.latency = 1, .bytes_per_second = 100}};
  launch(world, [](Rank& rank) {
    ActionLog log(rank.comm, 2);
    Clock& clock = rank.comm.clock();
    double worked = 0;
    const auto work_and_wait = [&](int i) {
      const ActionLog::Scope scope(log, {Operation::forward, rank.index, i});
      const double begin = clock.now();
      while (clock.now() < begin + 0.01 * (1 + rank.index) * (1 + 2 * i)) {
      }
      worked += clock.now() - begin;
      if (rank.index == 0) {
        rank.comm.send(Tensor::zeros({1}, DType::float32, rank.device), 1, 7);
      } else {
        rank.comm.receive({1}, DType::float32, 0, 7);  // a wait of a second, which is no work
      }
    };
    work_and_wait(0);  // an emulated processor translates the code now, for milliseconds
    log.clear();
    worked = 0;
    work_and_wait(0);
    work_and_wait(1);
    const Costs costs = log.mean_costs();
    const std::vector<double> of_both =
        rank.comm.sum_numbers(rank.index == 0 ? std::vector{worked, 0.0} : std::vector{0.0, worked});
    EXPECT_NEAR(costs.forward[0], of_both[0] / 2, 0.004);
    EXPECT_NEAR(costs.forward[1], of_both[1] / 2, 0.004);
    EXPECT_EQ(costs.backward[0], 0);
    EXPECT_EQ(costs.message, std::vector<double>{0}) << "the log knows of no messages";
    log.clear();
    EXPECT_EQ(log.mean_costs().forward[0], 0);
  });
}

TEST(ActionLog, KnowsTheWorkBetweenActions) {
  launch({.ranks = 1, .clock = ClockKind::modelled, .device_model = device_model("laptop")}, [](Rank& rank) {
    const Tensor a = Tensor::zeros({1000}, DType::float32, rank.device);
    const double start = rank.comm.clock().now();
    add(a, a);
    const double cost = rank.comm.clock().now() - start;
    ActionLog log(rank.comm, 1);
    { const ActionLog::Scope scope(log, {Operation::forward, 0, 0}); }
    add(a, a);
    { const ActionLog::Scope scope(log, {Operation::backward, 0, 0}); }
    add(a, a);
    add(a, a);
    { const ActionLog::Scope scope(log); }
    const Costs costs = log.mean_costs();
    EXPECT_EQ(costs.forward[0], 0);
    EXPECT_NEAR(costs.after_of({Operation::forward, 0, 0}, 0), cost, 1e-12);
    EXPECT_NEAR(costs.after_of({Operation::backward, 0, 0}, 0), 2 * cost, 1e-12);
    EXPECT_EQ(costs.after_of({Operation::update, 0, 0}, 0), 0);
    const std::vector<double> before = log.before()[0];
    ASSERT_EQ(before.size(), 3U);
    EXPECT_EQ(before[0], 0);
    EXPECT_NEAR(before[1], cost, 1e-12);
    EXPECT_NEAR(before[2], 2 * cost, 1e-12);
  });
}

// Ranks that compute one action together take as long as the slowest of them in each part between two exchanges.
TEST(ActionLog, CountsWaitsForStragglersWithinAnAction) {
  const World world{.ranks = 2, .clock = ClockKind::virtual_time, .network = Link{.latency = 1}};
  launch(world, [](Rank& rank) {
    ActionLog log(rank.comm, 1);
    Clock& clock = rank.comm.clock();
    const auto work = [&](double seconds) {
      for (const double end = clock.now() + seconds; clock.now() < end;) {
      }
    };
    {
      const ActionLog::Scope scope(log, {Operation::forward, 0, 0});
      for (const int slow : {0, 1}) {  // each rank is the slow one once
        work(rank.index == slow ? 0.04 : 0.01);
        rank.comm.barrier();  // its messages take a second each
      }
    }
    {
      const ActionLog::Scope scope(log);
      work(rank.index == 0 ? 0.04 : 0.01);
      rank.comm.barrier();
    }
    const Costs costs = log.mean_costs();
    EXPECT_NEAR(costs.forward[0], 0.08, 0.008);
    EXPECT_NEAR(costs.update[1], 0.01, 0.004) << "an update is its own work only";
  });
}

}  // namespace
}  // namespace stagecoach
