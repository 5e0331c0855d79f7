// Which link connects which ranks.

#include "parallel/comm/network.h"

#include <gtest/gtest.h>

#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

const Link kFast{1, 1000};
const Link kSlow{100, 10};

TEST(Network, OfOneKindHasOneLink) {
  const Network network = kFast;
  EXPECT_EQ(network.between(0, 7), kFast);
  EXPECT_EQ(network.among({0, 3, 900}), kFast);
}

TEST(Network, HasSlowLinksBetweenNodes) {
  const Network network(kFast, kSlow, 4);
  EXPECT_EQ(network.between(0, 3), kFast);
  EXPECT_EQ(network.between(3, 4), kSlow);
  EXPECT_EQ(network.between(5, 6), kFast);
  EXPECT_EQ(network.among({4, 5, 7}), kFast);
  EXPECT_EQ(network.among({0, 4}), kSlow);
  EXPECT_EQ(network.among_first(4), kFast);
  EXPECT_EQ(network.among_first(5), kSlow);
  EXPECT_EQ(network.among_any({{0, 1}, {4, 5}}), kFast);
  EXPECT_EQ(network.among_any({{0, 1}, {3, 4}}), kSlow);
}

TEST(Network, IsReadFromText) {
  EXPECT_EQ(network_from_text("1s,1000"), Network(kFast));
  EXPECT_EQ(network_from_text("inner=1s,1000,outer=100s,10,per-node=4"), Network(kFast, kSlow, 4));
  EXPECT_EQ(network_from_text("inner=nvlink4,outer=ethernet100,per-node=8"),
            Network(link_from_text("nvlink4"), link_from_text("ethernet100"), 8));
  for (const char* text : {"inner=nvlink4", "outer=nvlink4,inner=ethernet100,per-node=2", "inner=,outer=,per-node=2",
                           "inner=nvlink4,outer=ethernet100,per-node=two", "inner=nvlink4,per-node=2,outer=ethernet100",
                           "inner=ethernet100,outer=nvlink4,per-node=2", "per-node=2"}) {
    EXPECT_TRUE(fails_with<UsageError>({"'"}, [&] { network_from_text(text); })) << text;
  }
}

// Messages and collectives take the links of their ranks: on one node 1 s + 8 bytes, between nodes 100 s + 8 bytes.
TEST(Network, DecidesHowLongMessagesTake) {
  const World world{.ranks = 4, .clock = ClockKind::virtual_time, .network = Network(kFast, kSlow, 2)};
  launch(world, [](Rank& rank) {
    EXPECT_EQ(rank.comm.link_to(rank.index ^ 1), kFast);
    EXPECT_EQ(rank.comm.link_to((rank.index + 2) % 4), kSlow);
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
    EXPECT_GE(seconds_of(*across), ring_all_reduce_seconds(kSlow, 2, 8));
  });
}

}  // namespace
}  // namespace stagecoach
