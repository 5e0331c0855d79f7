// Which link connects which ranks.

#include "parallel/comm/network.h"

#include <gtest/gtest.h>

#include <vector>

#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

const Link kFast{1, 1000};
const Link kSlow{100, 16};
/// Returns the slow link of one of `messages` messages that pass a node's card at a time.
Link slow_for(int messages) { return {kSlow.latency, kSlow.bytes_per_second / messages}; }

const std::vector<int> kEight{0, 1, 2, 3, 4, 5, 6, 7};

TEST(Network, OfOneKindHasOneLink) {
  const Network network = kFast;
  EXPECT_EQ(network.between(kEight, 0, 7, {kEight}), kFast);
  EXPECT_EQ(network.among({0, 3, 900}, {{0, 3, 900}, {1, 4, 901}}), kFast);
}

TEST(Network, HasSlowLinksBetweenNodes) {
  const Network network(kFast, kSlow, 4);
  EXPECT_EQ(network.between(kEight, 0, 3, {kEight}), kFast);
  EXPECT_EQ(network.between(kEight, 5, 6, {kEight}), kFast);
  EXPECT_EQ(network.among({4, 5, 7}, {{4, 5, 7}}), kFast);
  EXPECT_EQ(network.among(kEight, {kEight}), kSlow);
  EXPECT_EQ(network.among_first(4), kFast);
  EXPECT_EQ(network.among_first(5), kSlow);
  EXPECT_EQ(network.among_any({{0, 1}, {4, 5}}, {{0, 1}, {4, 5}}), kFast);
  EXPECT_EQ(network.among_any({{0, 1}, {3, 4}}, {{0, 1}, {3, 4}}), kSlow);
}

// A pipeline of eight ranks on two nodes sends one message at a time through a card, in each direction, also from its
// last rank to its first one.
TEST(Network, GivesTheCardToTheOnlyRankThatCrosses) {
  const Network network(kFast, kSlow, 4);
  EXPECT_EQ(network.between(kEight, 3, 4, {kEight}), kSlow);
  EXPECT_EQ(network.between(kEight, 4, 3, {kEight}), kSlow);
  EXPECT_EQ(network.between(kEight, 7, 0, {kEight}), kSlow);
}

TEST(Network, DividesTheCardAmongTheRanksThatCrossAtOnce) {
  const Network network(kFast, kSlow, 4);
  EXPECT_EQ(network.between(kEight, 0, 4, {kEight}), slow_for(4)) << "ranks 0 to 3 send to ranks 4 to 7";
  EXPECT_EQ(network.between(kEight, 5, 0, {kEight}), slow_for(3)) << "ranks 5 to 7 send to ranks 0 to 2";
  const RankGroups pipelines{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(network.between({1, 5}, 0, 1, pipelines), slow_for(4));
  EXPECT_EQ(network.between_any(pipelines, 1, 0), slow_for(4));
  EXPECT_EQ(network.among({1, 5}, pipelines), slow_for(4));
  const RankGroups on_three_nodes{{0, 2, 8}, {1, 3, 9}, {4, 5, 6}};
  EXPECT_EQ(network.between({0, 2, 8}, 0, 1, on_three_nodes), kFast);
  EXPECT_EQ(network.between({0, 2, 8}, 1, 2, on_three_nodes), slow_for(2));
  EXPECT_EQ(network.among({4, 5, 6}, on_three_nodes), kFast);
  EXPECT_EQ(network.among_any({{4, 5, 6}, {1, 3, 9}}, on_three_nodes), slow_for(2));
}

// Of the seven steps of eight ranks on two nodes, the one to the fourth next rank sends most through the cards.
TEST(Network, TakesAllStepsOfAnAllToAllInTurn) {
  const Network network(kFast, kSlow, 4);
  double seconds = 0;
  for (const int crossing : {1, 2, 3, 4, 3, 2, 1}) {
    seconds += slow_for(crossing).seconds(160);
  }
  EXPECT_DOUBLE_EQ(network.all_to_all_seconds(kEight, {kEight}, std::vector<double>(7, 160)), seconds);
  EXPECT_DOUBLE_EQ(network.all_to_all_seconds({0, 1, 2}, {{0, 1, 2}, {4, 5, 6}}, {10, 30}),
                   kFast.seconds(10) + kFast.seconds(30));
  EXPECT_EQ(network.all_to_all_seconds({3}, {{3}}, {}), 0);
}

// Both ends of a link must agree on it, whichever of them is the first to use it.
TEST(Network, HasTheSameLinkInBothDirections) {
  const Network network(kFast, kSlow, 3);
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      EXPECT_EQ(network.between(kEight, from, to, {kEight}), network.between(kEight, to, from, {kEight}));
    }
  }
}

TEST(Network, IsReadFromText) {
  EXPECT_EQ(network_from_text("1s,1000"), Network(kFast));
  EXPECT_EQ(network_from_text("inner=1s,1000,outer=100s,16,per-node=4"), Network(kFast, kSlow, 4));
  EXPECT_EQ(network_from_text("inner=nvlink4,outer=ethernet100,per-node=8"),
            Network(link_from_text("nvlink4"), link_from_text("ethernet100"), 8));
  for (const char* text : {"inner=nvlink4", "outer=nvlink4,inner=ethernet100,per-node=2", "inner=,outer=,per-node=2",
                           "inner=nvlink4,outer=ethernet100,per-node=two", "inner=nvlink4,per-node=2,outer=ethernet100",
                           "inner=ethernet100,outer=nvlink4,per-node=2", "per-node=2"}) {
    EXPECT_TRUE(fails_with<UsageError>({"'"}, [&] { network_from_text(text); })) << text;
  }
}

// Messages and collectives take the links of their ranks: on one node 1 s, between nodes 100 s and more.
TEST(Network, DecidesHowLongMessagesTake) {
  const World world{.ranks = 4, .clock = ClockKind::virtual_time, .network = Network(kFast, kSlow, 2)};
  launch(world, [](Rank& rank) {
    EXPECT_EQ(rank.comm.link_to(rank.index ^ 1), kFast);
    EXPECT_EQ(rank.comm.link_to((rank.index + 2) % 4), slow_for(2));
    const auto seconds_of = [&](Communicator& comm) {
      Tensor sum = Tensor::zeros({2}, DType::float32, rank.device);
      const double began = comm.clock().now();
      comm.all_reduce(sum);
      return comm.clock().now() - began;
    };
    const auto node = rank.comm.split(rank.index / 2, rank.index);
    const double inner = seconds_of(*node);
    EXPECT_GE(inner, ring_all_reduce_seconds(kFast, 2, 8));
    EXPECT_LT(inner, ring_all_reduce_seconds(kSlow, 2, 8));
    rank.comm.barrier();
    const auto across = rank.comm.split(rank.index % 2, rank.index);
    EXPECT_GE(seconds_of(*across), ring_all_reduce_seconds(slow_for(2), 2, 8)) << "both pairs cross";
  });
}

// Groups that were split off from groups that were split off together are siblings as well.
TEST(Network, KnowsTheSiblingsOfAGroup) {
  const Network network(kFast, kSlow, 4);
  launch({.ranks = 8, .clock = ClockKind::virtual_time, .network = network}, [](Rank& rank) {
    const auto half = rank.comm.split(rank.index % 2, rank.index);       // 0 2 4 6 and 1 3 5 7
    const auto pair = half->split(half->rank() % 2, half->rank());       // 0 4, 2 6, 1 5 and 3 7
    const auto alone = rank.comm.split(rank.index % 4 == 0 ? 0 : 1, 0);  // 0 4, and the others
    EXPECT_EQ(half->link_to((half->rank() + 2) % 4), slow_for(4));
    EXPECT_EQ(pair->link_to(1 - pair->rank()), slow_for(4));
    EXPECT_EQ(pair->duplicate()->link_to(1 - pair->rank()), slow_for(4));
    if (alone->size() == 2) {
      EXPECT_EQ(alone->link_to(1 - alone->rank()), slow_for(2)) << "ranks 3 and 5 of the other group cross, too";
    }
  });
}

}  // namespace
}  // namespace stagecoach
