// The modelled clock: what a rank's kernels would take on a named device, and nothing else.

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "core/allocator.h"
#include "core/kernels/costs.h"
#include "core/ops.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

World modelled_world(int ranks, const Link& link = {}) {
  World world = test::world_of(ranks);
  world.clock = ClockKind::modelled;
  world.network = link;
  world.device_model = device_model("laptop");
  return world;
}

std::int64_t picoseconds(double seconds) { return std::llround(seconds * 1e12); }

/// Returns what the sum of two tensors of `count` numbers takes.
std::int64_t cost_of_add(std::int64_t count) {
  const Tensor a = Tensor::empty({count});
  Tensor sum = Tensor::empty({count});
  return device_model("laptop").picoseconds(kernel_costs().add(a, a, sum));
}

TEST(ModelledClock, AdvancesByTheCostsOfItsKernelsToThePicosecond) {
  STAGECOACH_NEEDS_RANKS(1);
  launch(modelled_world(1), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    EXPECT_EQ(clock.kind(), ClockKind::modelled);
    const Tensor a = test::random_tensor({1000}, "a", DType::float32).to(rank.device);
    const auto before = picoseconds(clock.now());
    add(a, a);
    add(a, a);
    EXPECT_EQ(picoseconds(clock.now()) - before, 2 * cost_of_add(1000));
  });
}

TEST(ModelledClock, WhatIsComputedInAWaitTakesNoTime) {
  STAGECOACH_NEEDS_RANKS(1);
  launch(modelled_world(1), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    const Tensor a = Tensor::zeros({10}, DType::float32, rank.device);
    const double before = clock.now();
    {
      const Waiting outer(clock);
      { Waiting(clock).until(before + 3e-6); }  // a wait within a wait
      add(a, a);
    }
    EXPECT_EQ(picoseconds(clock.now() - before), 3'000'000);
    EXPECT_EQ(picoseconds(clock.waited()), 6'000'000);  // both waits
  });
}

TEST(ModelledClock, AMessageArrivesAfterItsLink) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(modelled_world(2, {.latency = 1, .bytes_per_second = 4000}), [](Rank& rank) {
    const Tensor a = Tensor::zeros({2000}, DType::float32, rank.device);
    const double start = rank.comm.clock().now();
    if (rank.index == 0) {
      rank.comm.send(a, 1, 0);
    } else {
      rank.comm.receive({2000}, DType::float32, 0, 0);
    }
    EXPECT_EQ(picoseconds(rank.comm.clock().now() - start), 3'000'000'000'000);
  });
}

TEST(ModelledClock, AnotherThreadHasItsOwn) {
  STAGECOACH_NEEDS_RANKS(1);
  launch(modelled_world(1), [](Rank& rank) {
    const Tensor a = Tensor::zeros({10}, DType::float32, rank.device);
    const double before = rank.comm.clock().now();
    std::thread([&] {
      const auto other = rank.comm.clock().another();
      add(a, a);
      EXPECT_EQ(picoseconds(other->now()), cost_of_add(10));
    }).join();
    EXPECT_EQ(rank.comm.clock().now(), before);
  });
}

TEST(ModelledClock, CountsTheWorkspaceOfTheModelledDevice) {
  STAGECOACH_NEEDS_RANKS(1);
  World world = modelled_world(1);
  world.device_model = device_model("h200");
  launch(world, [](Rank& rank) {
    const Tensor x = Tensor::zeros({3, 700}, DType::float32, rank.device);
    const Tensor weight = Tensor::zeros({5, 700}, DType::float32, rank.device);
    Tensor y = Tensor::empty({3, 5}, DType::float32, rank.device);
    Allocator& memory = allocator(rank.device);
    memory.reset_peak();
    const std::size_t before = memory.stats().current_bytes;
    kernels(rank.device).linear(x, weight, {}, y);
    const auto workspace = static_cast<std::size_t>(kernel_costs().linear(x, weight, {}, y).cuda.workspace_bytes);
    EXPECT_EQ(memory.stats().peak_bytes - before, (workspace + 63) / 64 * 64);
  });
}

TEST(ModelledClock, IsNotForGpus) {
  EXPECT_TRUE(test::fails_with<UsageError>({"clock `modelled`", "got cuda:0"}, [] {
    make_clock(ClockKind::modelled, {DeviceType::cuda, 0}, {}, device_model("h200"));
  }));
}

}  // namespace
}  // namespace stagecoach
