// A rank's second thread: jobs in order, beside the rank's own work, whose failures end nobody's wait too late.

#include "parallel/comm/background.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/activity.h"
#include "parallel/comm/patience.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

Tensor number(double value, Device device) { return Tensor::full({1}, value, DType::float32, device); }

TEST(Background, SumsWhileTheRankTalksItself) {
  STAGECOACH_NEEDS_RANKS(4);
  launch(test::world_of(4), [](Rank& rank) {
    Background background(rank.comm);
    std::vector<Tensor> sums;
    std::vector<Background::Pending> pending;
    for (int i = 0; i < 20; ++i) {
      sums.push_back(number(i * (1 + rank.index), rank.device));
      pending.push_back(
          background.run("test", [sum = sums.back()](Communicator& comm) mutable { comm.all_reduce(sum); }));
      if (i % 3 == rank.index % 3) {  // ranks come to their jobs at different moments
        rank.comm.send_number(i, (rank.index + 1) % 4, 5);
      }
    }
    rank.comm.barrier();
    for (int i = 0; i < 20; ++i) {
      pending[static_cast<std::size_t>(i)].wait();
      EXPECT_EQ(sums[static_cast<std::size_t>(i)].item(), 10.0 * i);
    }
  });
}

TEST(Background, RunsItsJobsInTheirOrder) {
  launch({.ranks = 1}, [](Rank& rank) {
    Background background(rank.comm);
    std::string order;
    background.run("test", [&](Communicator&) { order += "a"; });
    background.run("test", [&](Communicator&) { order += "b"; });
    background.run("test", [&](Communicator&) { order += "c"; }).wait();
    EXPECT_EQ(order, "abc");
  });
}

TEST(Background, TakesTimeBesideThatOfTheRankOnAVirtualClock) {
  const Link link{.latency = 1000};  // beside it what the calls take does not count
  launch({.ranks = 2, .clock = ClockKind::virtual_time, .link = link}, [](Rank& rank) {
    Background background(rank.comm);
    Tensor sum = number(1, rank.device);
    const double before = rank.comm.clock().now();
    const auto first = background.run("test", [=](Communicator& comm) mutable { comm.all_reduce(sum); });
    const auto second = background.run("test", [=](Communicator& comm) mutable { comm.all_reduce(sum); });
    EXPECT_LT(rank.comm.clock().now() - before, 5);  // the rank goes on
    const Background::Span one = first.wait();
    EXPECT_NEAR(rank.comm.clock().now() - before, 2000, 5);  // two messages
    const Background::Span two = second.wait();
    EXPECT_NEAR(rank.comm.clock().now() - before, 4000, 5);
    EXPECT_NEAR(one.end - one.begin, 2000, 5);
    EXPECT_GE(two.begin, one.end);
    EXPECT_NEAR(rank.comm.clock().waited(), 4000, 5);
  });
}

TEST(Background, AFailureNamesTheWorkInWhichTheJobWasGiven) {
  launch({.ranks = 2}, [](Rank& rank) {
    Background background(rank.comm);
    const auto bad = [&] {
      const Activity activity("reduce", 3, Activity::kNone);
      return background.run("sum", [&](Communicator& comm) {
        Tensor sum = number(1, comm.device());
        rank.index == 0 ? comm.all_reduce(sum) : comm.broadcast(sum, 0);
      });
    }();
    EXPECT_TRUE(fails_with<CommError>({"in the sum of stage 3"}, [&] { bad.wait(); }));
  });
}

TEST(Background, ThrowsWhatTheJobThrew) {
  launch({.ranks = 1}, [](Rank& rank) {
    Background background(rank.comm);
    const auto bad = background.run("test", [](Communicator&) { throw Error("the bucket leaks"); });
    const auto next = background.run("test", [](Communicator&) { ADD_FAILURE() << "runs behind a failure"; });
    EXPECT_TRUE(fails_with<Error>({"the bucket leaks"}, [&] { bad.wait(); }));
    EXPECT_TRUE(fails_with<Error>({"the bucket leaks"}, [&] { next.wait(); }));
  });
}

TEST(Background, OfARankThatFailsGivesUpAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with<Error>({"rank 0: the disk is on fire"}, [&] {
    launch({.ranks = 3, .timeout = 60}, [&](Rank& rank) {
      Background background(rank.comm);
      Tensor sum = number(1, rank.device);
      const auto job = background.run("test", [=](Communicator& comm) mutable {
        if (comm.rank() != 1) {
          comm.all_reduce(sum);
        } else {
          comm.receive({1}, DType::float32, 0, 7);
        }
      });
      if (rank.index == 0) {
        throw Error("the disk is on fire");
      }
      job.wait();
    });
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Background, WaitsForARankThatComesLate) {
  STAGECOACH_NEEDS_RANKS(2);
  for (const bool sleeps_first : {false, true}) {  // whether the job waits before the rank lends it the core
    launch(test::world_of(2), [&](Rank& rank) {
      Background background(rank.comm);
      if (rank.index == 1) {
        std::this_thread::sleep_for(3 * kLongestPoll);
      }
      Tensor sum = number(1 + rank.index, rank.device);
      const auto job = background.run("test", [sum](Communicator& comm) mutable { comm.all_reduce(sum); });
      if (sleeps_first) {
        std::this_thread::sleep_for(kLongestPoll / 4);
      }
      job.wait();
      EXPECT_EQ(sum.item(), 3);
    });
  }
}

TEST(Background, WaitsNoLongerThanTheTimeout) {
  EXPECT_TRUE(fails_with<CommError>({"all_reduce, in the test", "no answer within 0.2 s", "not yet there: rank 1"}, [] {
    launch({.ranks = 2, .timeout = 0.2}, [](Rank& rank) {
      Background background(rank.comm);
      if (rank.index == 0) {
        background.run("test", [sum = number(1, rank.device)](Communicator& comm) mutable { comm.all_reduce(sum); })
            .wait();
      }
    });
  }));
}

}  // namespace
}  // namespace stagecoach
