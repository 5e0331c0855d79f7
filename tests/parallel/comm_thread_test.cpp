// A rank's second thread: jobs in order, beside the rank's own work, whose failures end nobody's wait too late.

#include "parallel/comm/comm_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/activity.h"
#include "parallel/comm/wait_policy.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

Tensor number(double value, Device device) { return Tensor::full({1}, value, DType::float32, device); }

TEST(CommThread, SumsWhileTheRankTalksItself) {
  STAGECOACH_NEEDS_RANKS(4);
  launch(test::world_of(4), [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    std::vector<Tensor> sums;
    std::vector<CommThread::Pending> pending;
    for (int i = 0; i < 20; ++i) {
      sums.push_back(number(i * (1 + rank.index), rank.device));
      pending.push_back(
          comm_thread.submit("test", [sum = sums.back()](Communicator& comm) mutable { comm.all_reduce(sum); }));
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

TEST(CommThread, RunsItsJobsInTheirOrder) {
  launch({.ranks = 1}, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    std::string order;
    comm_thread.submit("test", [&](Communicator&) { order += "a"; });
    comm_thread.submit("test", [&](Communicator&) { order += "b"; });
    comm_thread.submit("test", [&](Communicator&) { order += "c"; }).wait();
    EXPECT_EQ(order, "abc");
  });
}

TEST(CommThread, TakesTimeBesideThatOfTheRankOnAVirtualClock) {
  const Link link{.latency = 1000};  // beside it what the calls take does not count
  launch({.ranks = 2, .clock = ClockKind::virtual_time, .network = link}, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    Tensor sum = number(1, rank.device);
    const double before = rank.comm.clock().now();
    const auto first = comm_thread.submit("test", [=](Communicator& comm) mutable { comm.all_reduce(sum); });
    const auto second = comm_thread.submit("test", [=](Communicator& comm) mutable { comm.all_reduce(sum); });
    EXPECT_LT(rank.comm.clock().now() - before, 5);  // the rank goes on
    const CommThread::Span one = first.wait();
    EXPECT_NEAR(rank.comm.clock().now() - before, 2000, 5);  // two messages
    const CommThread::Span two = second.wait();
    EXPECT_NEAR(rank.comm.clock().now() - before, 4000, 5);
    EXPECT_NEAR(one.end - one.begin, 2000, 5);
    EXPECT_GE(two.begin, one.end);
    EXPECT_NEAR(rank.comm.clock().waited(), 4000, 5);
  });
}

TEST(CommThread, AFailureNamesTheWorkInWhichTheJobWasGiven) {
  launch({.ranks = 2}, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    const auto bad = [&] {
      const Activity activity("reduce", 3, Activity::kNone);
      return comm_thread.submit("sum", [&](Communicator& comm) {
        Tensor sum = number(1, comm.device());
        rank.index == 0 ? comm.all_reduce(sum) : comm.broadcast(sum, 0);
      });
    }();
    EXPECT_TRUE(fails_with<CommError>({"in the sum of stage 3"}, [&] { bad.wait(); }));
  });
}

TEST(CommThread, ThrowsWhatTheJobThrew) {
  launch({.ranks = 1}, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    const auto bad = comm_thread.submit("test", [](Communicator&) { throw Error("the bucket leaks"); });
    const auto next = comm_thread.submit("test", [](Communicator&) { ADD_FAILURE() << "runs behind a failure"; });
    EXPECT_TRUE(fails_with<Error>({"the bucket leaks"}, [&] { bad.wait(); }));
    EXPECT_TRUE(fails_with<Error>({"the bucket leaks"}, [&] { next.wait(); }));
  });
}

TEST(CommThread, OfARankThatFailsGivesUpAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with<Error>({"rank 0: the disk is on fire"}, [&] {
    launch({.ranks = 3, .timeout = 60}, [&](Rank& rank) {
      CommThread comm_thread(rank.comm);
      Tensor sum = number(1, rank.device);
      const auto job = comm_thread.submit("test", [=](Communicator& comm) mutable {
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

TEST(CommThread, WaitsForARankThatComesLate) {
  STAGECOACH_NEEDS_RANKS(2);
  for (const bool sleeps_first : {false, true}) {  // whether the job waits before the rank lends it the core
    launch(test::world_of(2), [&](Rank& rank) {
      CommThread comm_thread(rank.comm);
      if (rank.index == 1) {
        std::this_thread::sleep_for(3 * kLongestPoll);
      }
      Tensor sum = number(1 + rank.index, rank.device);
      const auto job = comm_thread.submit("test", [sum](Communicator& comm) mutable { comm.all_reduce(sum); });
      if (sleeps_first) {
        std::this_thread::sleep_for(kLongestPoll / 4);
      }
      job.wait();
      EXPECT_EQ(sum.item(), 3);
    });
  }
}

TEST(CommThread, WaitsNoLongerThanTheTimeout) {
  EXPECT_TRUE(fails_with<CommError>({"all_reduce, in the test", "no answer within 0.2 s", "still missing: rank 1"}, [] {
    launch({.ranks = 2, .timeout = 0.2}, [](Rank& rank) {
      CommThread comm_thread(rank.comm);
      if (rank.index == 0) {
        comm_thread.submit("test", [sum = number(1, rank.device)](Communicator& comm) mutable { comm.all_reduce(sum); })
            .wait();
      }
    });
  }));
}

}  // namespace
}  // namespace stagecoach
