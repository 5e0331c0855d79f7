// Tied weights on two ranks: the bytes of one device, and one state of the optimizer.

#include "parallel/pipeline/tied_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;

constexpr int kTiedSteps = 3;
const Shape kTiedShape{5, 3};
const TiedWeights::Names kTiedNames{{"first", "copy"}};

Tensor leaf_on(const std::string& name, Device device) { return random_leaf(kTiedShape, name, DType::float32, device); }

/// Trains `mine`, a rank's part of three parameters, with gradients that depend on name and step.
void train_tied(const NamedTensors& mine, Optimizer& optimizer) {
  for (int step = 0; step < kTiedSteps; ++step) {
    for (const auto& [name, parameter] : mine) {
      const std::string seed = fmt::format("{} {}", name, step);
      Tensor(parameter).set_grad(random_tensor(kTiedShape, seed, DType::float32, parameter.device()));
    }
    optimizer.step();
    optimizer.zero_grad();
  }
}

std::unique_ptr<Optimizer> adam_of(NamedTensors parameters) {
  std::erase_if(parameters, [](const auto& named) { return named.first == "copy"; });
  return std::make_unique<Adam>(std::move(parameters), AdamSettings{.learning_rate = 0.1});
}

TEST(TiedRanks, TrainTheBytesOfOneDevice) {
  STAGECOACH_NEEDS_RANKS(3);
  const NamedTensors whole{
      {"first", leaf_on("first", {})}, {"other", leaf_on("other", {})}, {"copy", leaf_on("copy", {})}};
  const auto optimizer = adam_of(whole);
  tie(*optimizer, TiedWeights(whole, kTiedNames));
  train_tied(whole, *optimizer);
  EXPECT_TRUE(same_bytes(whole[0].second, whole[2].second));
  for (const int rank_of_first : {0, 2}) {  // a table from a file may have any placement
    launch(test::world_of(3), [&](Rank& rank) {
      const std::string name = rank.index == 1 ? "other" : rank.index == rank_of_first ? "first" : "copy";
      const NamedTensors mine{{name, leaf_on(name, rank.device)}};
      const auto of_rank = adam_of(mine);
      tie_ranks(*of_rank, mine, kTiedNames, rank.comm);
      train_tied(mine, *of_rank);
      EXPECT_TRUE(same_bytes(mine[0].second.to(Device{}), whole[name == "other" ? 1 : 0].second)) << name;
      EXPECT_FALSE(mine[0].second.grad().defined()) << name;
    });
  }
}

TEST(TiedRanks, SendTheWeightsOncePerStepAndDirection) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(test::world_of(2), [](Rank& rank) {
    const std::string name = rank.index == 0 ? "first" : "copy";
    const NamedTensors mine{{name, leaf_on(name, rank.device)}};
    const auto optimizer = adam_of(mine);
    tie_ranks(*optimizer, mine, kTiedNames, rank.comm);
    const double before = rank.comm.bytes_sent()[1 - rank.index];
    train_tied(mine, *optimizer);
    EXPECT_EQ(rank.comm.bytes_sent()[1 - rank.index] - before, kTiedSteps * 5 * 3 * 4);
  });
}

TEST(TiedRanks, LeaveAPairOfOneRankAlone) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(test::world_of(2), [](Rank& rank) {
    NamedTensors mine{{"first", leaf_on("first", rank.device)}, {"copy", leaf_on("copy", rank.device)}};
    if (rank.index == 1) {
      mine = {{"other", leaf_on("other", rank.device)}};
    }
    const auto optimizer = adam_of(mine);
    tie_ranks(*optimizer, mine, kTiedNames, rank.comm);
    EXPECT_TRUE(rank.index == 1 || !same_bytes(mine[0].second, mine[1].second));
  });
}

TEST(TiedRanks, RefuseReplicasAndAStepWithoutABackward) {
  STAGECOACH_NEEDS_RANKS(2);
  EXPECT_TRUE(fails_with<Error>({"'first' and 'copy' on one rank each, got 2 and 0 ranks"}, [] {
    launch(test::world_of(2), [](Rank& rank) {
      const NamedTensors mine{{"first", leaf_on("first", rank.device)}};
      tie_ranks(*adam_of(mine), mine, kTiedNames, rank.comm);
    });
  }));
  EXPECT_TRUE(fails_with<Error>({"has no gradient; run a backward before each step"}, [] {
    launch(test::world_of(2), [](Rank& rank) {
      const std::string name = rank.index == 0 ? "first" : "copy";
      const NamedTensors mine{{name, leaf_on(name, rank.device)}};
      const auto optimizer = adam_of(mine);
      tie_ranks(*optimizer, mine, kTiedNames, rank.comm);
      optimizer->step();
    });
  }));
}

}  // namespace
}  // namespace stagecoach
