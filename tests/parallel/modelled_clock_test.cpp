// The modelled clock: what a rank's kernels would take on a named device, and nothing else.

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>

#include "core/allocator.h"
#include "core/kernels/costs.h"
#include "core/ops.h"
#include "parallel/comm/keep_alive.h"
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

// The receiver may have the message in real time long before it does on its clock.
TEST(ModelledClock, ASendIsCompletedAtItsTimeAndNotWhenItHasReallyArrived) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(modelled_world(2, {.latency = 1, .bytes_per_second = 4000}), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    const double start = clock.now();
    if (rank.index == 0) {
      const PendingSend send = rank.comm.send_async(Tensor::zeros({2000}, DType::float32, rank.device), 1, 0);
      const double sent = clock.now();
      rank.comm.receive_number(1, 1);  // it has really arrived
      EXPECT_EQ(clock.now(), sent) << "a number takes no time";
      EXPECT_FALSE(send.completed());
      Waiting(clock).until(start + 100);
      EXPECT_TRUE(send.completed());
      send.wait();
      EXPECT_EQ(picoseconds(clock.now() - start), 100'000'000'000'000);
    } else {
      rank.comm.receive({2000}, DType::float32, 0, 0);
      rank.comm.send_number(1, 0, 1);
    }
  });
}

// By whichever transport, and whatever that computes to move tensors or to sum them.
TEST(ModelledClock, CollectivesTakeWhatTheirAlgorithmsTake) {
  STAGECOACH_NEEDS_RANKS(3);
  const Link link{.latency = 1e-5, .bytes_per_second = 1e9};
  launch(modelled_world(3, link), [&](Rank& rank) {
    Clock& clock = rank.comm.clock();
    Allocator& memory = allocator(rank.device);
    for (const std::int64_t count : {3, 300'000}) {  // short sums are made in another way
      Tensor tensor = Tensor::zeros({count}, DType::float32, rank.device);
      const double bytes = static_cast<double>(tensor.bytes());
      const auto expect_seconds = [&](double seconds, std::size_t results, const auto& collective) {
        memory.reset_peak();
        const std::size_t held = memory.stats().current_bytes;
        const double start = clock.now();
        static_cast<void>(collective());
        EXPECT_NEAR(clock.now() - start, seconds, 2e-12);
        EXPECT_LE(memory.stats().peak_bytes, held + results * ((tensor.bytes() + 63) / 64 * 64));
        EXPECT_EQ(memory.stats().current_bytes, held);
      };
      const auto nothing = [](auto&& call) { return [call] { return call(), 0; }; };
      expect_seconds(ring_all_reduce_seconds(link, 3, bytes), 0, nothing([&] { rank.comm.all_reduce(tensor); }));
      expect_seconds(root_reduce_seconds(link, 3, bytes), 0, nothing([&] { rank.comm.reduce(tensor, 1); }));
      expect_seconds(tree_broadcast_seconds(link, 3, bytes), 0, nothing([&] { rank.comm.broadcast(tensor, 1); }));
      expect_seconds(ring_all_gather_seconds(link, 3, bytes), 3, [&] { return rank.comm.all_gather(tensor); });
      expect_seconds(ring_all_gather_seconds(link, 3, bytes / 3), 0, nothing([&] {
                       const std::int64_t part = count / 3;
                       rank.comm.all_gather_into(tensor, tensor.narrow(rank.index * part, part));
                     }));
      expect_seconds(ring_reduce_scatter_seconds(link, 3, bytes), 1, [&] { return rank.comm.reduce_scatter(tensor); });
      const RowCounts thirds(3, count / 3);
      expect_seconds(2 * link.seconds(bytes / 3), 1, [&] { return rank.comm.all_to_all(tensor, thirds, thirds); });
    }
  });
}

// A rank to which all others send much is busy for longer than they are, and they wait for it in the next collective.
TEST(ModelledClock, AnAllToAllTakesEachRankAsLongAsItsOwnMessages) {
  STAGECOACH_NEEDS_RANKS(3);
  const Link link{.latency = 1, .bytes_per_second = 4};
  launch(modelled_world(3, link), [&](Rank& rank) {
    RowCounts send_rows(3, 1);
    RowCounts receive_rows(3, rank.index == 0 ? 100 : 1);
    send_rows[0] = 100;
    const Tensor rows = Tensor::zeros({102}, DType::float32, rank.device);
    rank.comm.barrier();
    const double start = rank.comm.clock().now();
    rank.comm.all_to_all(rows, send_rows, receive_rows);
    EXPECT_NEAR(rank.comm.clock().now() - start, rank.index == 0 ? 2 * 101 : 101 + 2, 1e-9);
    rank.comm.barrier();
    EXPECT_NEAR(rank.comm.clock().now() - start, 2 * 101 + tree_broadcast_seconds(link, 3, 0), 1e-9);
  });
}

// A sent tensor is the sender's until it is dropped, and the receiver's from when its receive is posted.
TEST(ModelledClock, MessagesUnderWayBelongToNeitherRank) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(modelled_world(2), [](Rank& rank) {
    constexpr std::size_t kBytes = 4096;
    Allocator& memory = allocator(rank.device);
    const std::size_t held = memory.stats().current_bytes;
    if (rank.index == 0) {
      const PendingSend send =
          rank.comm.send_async(Tensor::zeros({kBytes / sizeof(float)}, DType::float32, rank.device), 1, 0);
      EXPECT_EQ(memory.stats().current_bytes, held);
      rank.comm.send_number(1, 1, 1);
      send.wait();
    } else {
      rank.comm.receive_number(0, 1);
      std::optional<PendingReceive> receive = rank.comm.receive_async({kBytes / sizeof(float)}, DType::float32, 0, 0);
      EXPECT_EQ(memory.stats().current_bytes, held + kBytes);
      const Tensor tensor = receive->wait();
      receive.reset();
      EXPECT_EQ(memory.stats().current_bytes, held + kBytes);
    }
  });
}

TEST(ModelledClock, SignsOfLifeTakeNoTime) {
  STAGECOACH_NEEDS_RANKS(2);
  const Link link{.latency = 1, .bytes_per_second = 0};
  launch(modelled_world(2, link), [&](Rank& rank) {
    KeepAlive keep_alive(rank.comm, 30);
    const double start = rank.comm.clock().now();
    keep_alive.during([] {});
    EXPECT_EQ(picoseconds(rank.comm.clock().now() - start), 2'000'000'000'000) << "two barriers";
  });
}

TEST(ModelledClock, IsNotForGpus) {
  EXPECT_TRUE(test::fails_with<UsageError>({"clock `modelled`", "got cuda:0"}, [] {
    make_clock(ClockKind::modelled, {DeviceType::cuda, 0}, {}, device_model("h200"));
  }));
}

}  // namespace
}  // namespace stagecoach
