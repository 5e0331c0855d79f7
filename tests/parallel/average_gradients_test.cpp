// What the replicas of a stage do before an update.

#include "parallel/data_parallel/average_gradients.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/launch/launch.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

Tensor leaf(std::vector<float> values, Device device) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {count}, device).set_requires_grad(true);
}

TEST(AverageGradients, IsTheSumOverTheReplicasDividedByTheBatches) {
  launch({.ranks = 3}, [](Rank& rank) {
    const NamedTensors parameters{{"a", leaf({0, 0}, rank.device)}, {"b", leaf({0}, rank.device)}};
    Tensor a = parameters[0].second;
    Tensor b = parameters[1].second;
    const auto r = static_cast<float>(rank.index);
    a.set_grad(Tensor::from(std::vector<float>{1 + r, 10 * r}, {2}, rank.device));
    if (rank.index != 2) {  // the last one had no micro-batch
      b.set_grad(Tensor::from(std::vector<float>{4 + r}, {1}, rank.device));
    }
    average_gradients(parameters, 4, rank.comm);
    EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{6.0F / 4, 30.0F / 4}));
    EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{9.0F / 4}));
  });
}

TEST(AverageGradients, LeavesAStageOfOneRankAndOneBatchAsItIs) {
  const auto alone_here = self_communicator({});
  const NamedTensors parameters{{"a", leaf({0, 0}, {})}};
  Tensor a = parameters[0].second;
  a.set_grad(Tensor::from(std::vector<float>{3, 5}, {2}));
  average_gradients(parameters, 1, *alone_here);
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{3, 5}));
}

TEST(RequireEqualReplicas, NamesTheParameterThatDiffers) {
  const auto run = [](float last) {
    launch({.ranks = 2}, [last](Rank& rank) {
      const NamedTensors parameters{{"same", leaf({1, 2}, rank.device)},
                                    {"other", leaf({1, rank.index == 0 ? 2 : last}, rank.device)}};
      require_equal_replicas(parameters, rank.comm);
    });
  };
  run(2);
  EXPECT_TRUE(fails_with<Error>({"'other'"}, [&] { run(3); }));
}

}  // namespace
}  // namespace stagecoach
