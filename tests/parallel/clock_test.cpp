// What time it is on a rank: the wall's, or that of its own work.
//
// What the calls themselves take is real, and on a busy machine or under a sanitizer it may be long. So links here take
// minutes, of which nobody waits for one: beside them it does not count.

#include "parallel/comm/clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::world_of;

/// Computes until this thread's clock has advanced by `seconds`.
void work(Clock& clock, double seconds) {
  const double end = clock.now() + seconds;
  while (clock.now() < end) {
  }
}

/// As if it had waited for others until `time`, by a virtual clock.
void skip_to(Clock& clock, double time) { Waiting(clock).until(time); }

void rest(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

World virtual_world(int ranks, const Link& link = {}) {
  World world = world_of(ranks);
  world.clock = ClockKind::virtual_time;
  world.network = link;
  return world;
}

TEST(VirtualClock, AdvancesByOwnWorkOnly) {
  STAGECOACH_NEEDS_RANKS(1);
  launch(virtual_world(1), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    EXPECT_EQ(clock.kind(), ClockKind::virtual_time);
    work(clock, 0.2);
    EXPECT_GE(clock.now(), 0.2);
    const auto begun = clock.another();
    EXPECT_LT(begun->now(), 0.1) << "what the thread did before does not count";
    rest(400);  // the thread does nothing
    EXPECT_LT(begun->now(), 0.2);
    EXPECT_EQ(clock.waited(), 0);
  });
}

TEST(WallClock, AdvancesByItself) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(world_of(2), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    EXPECT_EQ(clock.kind(), ClockKind::wall);
    if (rank.index == 0) {
      rest(60);
    }
    rank.comm.barrier();
    EXPECT_GE(clock.now(), 0.06);
    if (rank.index == 1) {
      EXPECT_GT(clock.waited(), 0.02);  // for the rank that rested
    }
  });
}

// A message arrives at its sender's time, plus the link's latency, plus its bytes over the bandwidth.
TEST(VirtualClock, AMessageCarriesItsTime) {
  STAGECOACH_NEEDS_RANKS(2);
  const Link link{.latency = 500, .bytes_per_second = 4};
  launch(virtual_world(2, link), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    rank.comm.barrier();  // the first message between two processes makes their connection
    const double start = clock.now();
    if (rank.index == 0) {
      skip_to(clock, start + 20);
      const double sent = clock.now();
      const PendingSend send = rank.comm.send_async(Tensor::zeros({1000}), 1, 0);
      EXPECT_LT(clock.now(), sent + 5) << "an asynchronous send takes no time";
      send.wait();
      EXPECT_GT(clock.now(), sent + 1500) << "the receiver took it only when it was there";
    } else {
      rank.comm.receive({1000}, DType::float32, 0, 0);
      EXPECT_GT(clock.now() - start, 20 + 500 + 1000 - 1);  // the ranks leave the barrier not quite at once
      EXPECT_LT(clock.now() - start, 20 + 500 + 1000 + 5);
      EXPECT_GT(clock.waited(), 1500);
    }
  });
}

// Each way of a link carries one message at a time.
TEST(VirtualClock, MessagesWaitForThoseBeforeThem) {
  STAGECOACH_NEEDS_RANKS(2);
  const Link link{.latency = 500, .bytes_per_second = 4};
  launch(virtual_world(2, link), [](Rank& rank) {
    const int other = 1 - rank.index;
    std::vector<PendingSend> sends;
    for (int i = 0; i < 3; ++i) {
      sends.push_back(rank.comm.send_async(Tensor::zeros({1000}, DType::float32, rank.device), other, 0));
    }
    for (int i = 0; i < 3; ++i) {
      rank.comm.receive({1000}, DType::float32, other, 0);
      EXPECT_GT(rank.comm.clock().now(), 500 + 1000 * (i + 1));
      EXPECT_LT(rank.comm.clock().now(), 500 + 1000 * (i + 1) + 5);
    }
    for (const PendingSend& send : sends) {
      send.wait();
    }
  });
}

TEST(VirtualClock, AMessageThatCameLongAgoIsNotWaitedFor) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(virtual_world(2, {.latency = 500, .bytes_per_second = 0}), [](Rank& rank) {
    Clock& clock = rank.comm.clock();
    if (rank.index == 0) {
      rank.comm.send_async(Tensor::zeros({1}), 1, 0);
      rank.comm.barrier();
    } else {
      skip_to(clock, 1000);
      const double waited = clock.waited();
      rank.comm.receive({1}, DType::float32, 0, 0);
      EXPECT_LT(clock.now(), 1000 + 5);
      EXPECT_EQ(clock.waited(), waited);
      rank.comm.barrier();
    }
  });
}

// Four ranks that send through one card take four times as long as one that sends alone.
TEST(VirtualClock, RanksOfANodeShareItsCard) {
  STAGECOACH_NEEDS_RANKS(8);
  World world = virtual_world(8);
  world.network = Network(Link{}, Link{.latency = 500, .bytes_per_second = 4}, 4);
  launch(world, [](Rank& rank) {
    const auto pass = [&](int partner) {
      const double start = rank.comm.clock().now();
      if (rank.index < 4) {
        rank.comm.send(Tensor::zeros({2000}, DType::float32, rank.device), partner, 0);
      } else {
        static_cast<void>(rank.comm.receive({2000}, DType::float32, partner, 0));
      }
      return rank.comm.clock().now() - start;
    };
    EXPECT_NEAR(pass((rank.index + 4) % 8), 500 + 4 * 2000, 50);
    if (rank.index == 3 || rank.index == 4) {
      EXPECT_NEAR(pass(7 - rank.index), 500 + 2000, 50);
    }
  });
}

// All leave an operation of all together: at the time of the last one, plus what the operation takes.
TEST(VirtualClock, AnOperationOfAllEndsForAllAtOnce) {
  STAGECOACH_NEEDS_RANKS(3);
  const Link link{.latency = 250, .bytes_per_second = 1};
  launch(virtual_world(3, link), [&](Rank& rank) {
    Clock& clock = rank.comm.clock();
    skip_to(clock, 30 * rank.index);
    Tensor tensor = Tensor::zeros({75}, DType::float32, rank.device);  // 300 bytes
    rank.comm.all_reduce(tensor);
    const double wanted = 60 + ring_all_reduce_seconds(link, 3, 300);
    EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(link, 3, 300), 4 * (250 + 100));
    EXPECT_GT(clock.now(), wanted);
    EXPECT_LT(clock.now(), wanted + 5);
    EXPECT_NEAR(clock.waited_for_stragglers(), 60 - 30 * rank.index, 5) << "and not for the link";
    rank.comm.barrier();
    EXPECT_GT(clock.now(), wanted + 500);
  });
}

TEST(VirtualClock, HalvesTravelInHalfTheTime) {
  STAGECOACH_NEEDS_RANKS(4);
  const Link link{.latency = 0, .bytes_per_second = 1};
  launch(virtual_world(4, link), [&](Rank& rank) {
    const auto seconds = [&](DType dtype) {
      Tensor tensor = Tensor::zeros({1000}, dtype, rank.device);
      const double before = rank.comm.clock().now();
      rank.comm.all_reduce(tensor);
      return rank.comm.clock().now() - before;
    };
    EXPECT_NEAR(seconds(DType::float32), 6000, 5);
    EXPECT_NEAR(seconds(DType::float16), 3000, 5);
  });
}

// More ranks than cores: the wall clock would show them one after the other.
TEST(VirtualClock, RanksThatShareCoresWorkSideBySide) {
  const int ranks = 4 * static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  STAGECOACH_NEEDS_RANKS(ranks);
  launch(virtual_world(ranks), [](Rank& rank) {
    work(rank.comm.clock(), 0.2);
    rank.comm.barrier();
    EXPECT_LT(rank.comm.clock().now(), 0.4);
  });
}

TEST(Link, IsReadFromText) {
  EXPECT_EQ(link_from_text("none"), (Link{0, 0}));
  EXPECT_EQ(link_from_text("ethernet100"), (Link{20e-6, 12.5e9}));
  EXPECT_EQ(link_from_text("2e-5,12.5e9"), link_from_text("ethernet100"));
  EXPECT_DOUBLE_EQ(link_from_text("20us,12.5GB/s").latency, 20e-6);
  EXPECT_DOUBLE_EQ(link_from_text("20us,12.5GB/s").bytes_per_second, 12.5e9);
  EXPECT_EQ(link_from_text("0,100Mbit/s"), (Link{0, 12.5e6}));
  for (const char* text :
       {"", "wifi", "1", "1,", ",1", "1,0", "-1,5", "1,2us", "1,2,3", "nan,1", "1 ,2", "inf,1", "1,1e999"}) {
    EXPECT_TRUE(fails_with<UsageError>({"none, nvlink4, pcie4, ethernet100", "20us,12.5GB/s"}, [&] {
      link_from_text(text);
    })) << text;
  }
}

TEST(Link, TakesLatencyAndBytesOverBandwidth) {
  const Link link{.latency = 1, .bytes_per_second = 10};
  EXPECT_DOUBLE_EQ(link.seconds(50), 6);
  EXPECT_DOUBLE_EQ(Link{}.seconds(1e12), 0);
  EXPECT_DOUBLE_EQ(ring_all_gather_seconds(link, 4, 10), 6);
  EXPECT_DOUBLE_EQ(ring_reduce_scatter_seconds(link, 4, 40), 6);
  EXPECT_DOUBLE_EQ(tree_broadcast_seconds(link, 4, 10), 4);
  EXPECT_DOUBLE_EQ(tree_broadcast_seconds(link, 5, 10), 6);
  EXPECT_DOUBLE_EQ(tree_broadcast_seconds(link, 1, 10), 0);
  EXPECT_DOUBLE_EQ(root_reduce_seconds(link, 4, 10), 6);
}

}  // namespace
}  // namespace stagecoach
