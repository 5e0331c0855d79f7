#pragma once
/// @file
/// What ranks can rely on whatever they talk by. Tests of a transport call these with a function that launches ranks
/// which talk by it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/activity.h"
#include "parallel/launch/launch.h"
#include "tests/support/errors.h"

namespace stagecoach::test {

using Launch = void (*)(const World& world, const std::function<void(Rank&)>& body);

/// Something that a rank can wait in, for rank 0.
struct Wait {
  const char* name;
  void (*run)(Rank& rank);
};

inline Tensor number(const Rank& rank) { return Tensor::zeros({2}, DType::float32, rank.device); }

inline const Wait kWaits[] = {
    {"send", [](Rank& rank) { rank.comm.send(number(rank), 0, 7); }},
    {"receive", [](Rank& rank) { rank.comm.receive({2}, DType::float32, 0, 7); }},
    {"receive_number", [](Rank& rank) { rank.comm.receive_number(0, 7); }},
    {"all_reduce",
     [](Rank& rank) {
       Tensor tensor = number(rank);
       rank.comm.all_reduce(tensor);
     }},
    {"reduce",
     [](Rank& rank) {
       Tensor tensor = number(rank);
       rank.comm.reduce(tensor, 0);
     }},
    {"broadcast",
     [](Rank& rank) {
       Tensor tensor = number(rank);
       rank.comm.broadcast(tensor, 0);
     }},
    {"all_gather", [](Rank& rank) { rank.comm.all_gather(number(rank)); }},
    {"all_gather_into",
     [](Rank& rank) {
       Tensor whole = Tensor::zeros({rank.world}, DType::float32, rank.device);
       rank.comm.all_gather_into(whole, Tensor::zeros({1}, DType::float32, rank.device));
     }},
    {"reduce_scatter",
     [](Rank& rank) { rank.comm.reduce_scatter(Tensor::zeros({rank.world}, DType::float32, rank.device)); }},
    {"all_to_all",
     [](Rank& rank) {
       const RowCounts one_each(static_cast<std::size_t>(rank.world), 1);
       rank.comm.all_to_all(Tensor::zeros({rank.world}, DType::float32, rank.device), one_each, one_each);
     }},
    {"barrier", [](Rank& rank) { rank.comm.barrier(); }},
    {"split", [](Rank& rank) { rank.comm.split(0, 0); }},
};

/// Of three ranks the first fails; the others wait, and are told.
inline void expect_failure_ends(Launch launch, const Wait& wait) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(fails_with<Error>({"rank 0: the disk is on fire"}, [&] {
    launch({.ranks = 3, .timeout = 60}, [&](Rank& rank) {
      if (rank.index == 0) {
        throw Error("the disk is on fire");
      }
      EXPECT_TRUE(fails_with<CommError>({fmt::format("rank {}: {}", rank.index, wait.name).c_str(),
                                         "stopped because rank 0 has failed", "the disk is on fire"},
                                        [&] { wait.run(rank); }));
    });
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "long before the timeout";
}

/// Rank 0 says nothing for `timeout` seconds.
inline void expect_deadline_ends(Launch launch, const Wait& wait, double timeout) {
  const std::string within = fmt::format("within {} s", timeout);
  EXPECT_TRUE(fails_with<CommError>(
      {"rank 1", wait.name, "in the backward of stage 3, micro-batch 9", within.c_str(), "`timeout`"}, [&] {
        launch({.ranks = 2, .timeout = timeout}, [&](Rank& rank) {
          if (rank.index == 1) {
            const Activity activity("backward", 3, 9);
            wait.run(rank);
          }
        });
      }));
}

/// What two ranks do: messages keep their order under one tag, and not between tags.
inline void expect_order(Rank& rank) {
  if (rank.index == 0) {
    for (const int value : {1, 2, 3}) {  // nobody waits for these sends; the end of the group does
      rank.comm.send_async(Tensor::full({2}, value, DType::float32, rank.device), 1, value == 2);
    }
    return;
  }
  const auto next = [&](int tag) { return rank.comm.receive({2}, DType::float32, 0, tag).to_vector<float>()[0]; };
  EXPECT_EQ(next(1), 2);
  EXPECT_EQ(next(0), 1);
  EXPECT_EQ(next(0), 3);
}

// Receives that are posted: tags are waited for in another order than they were posted in.
inline void expect_posted_receives_get_their_messages(Launch launch, const World& world) {
  launch(world, [](Rank& rank) {
    const int other = 1 - rank.index;
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{900}, Shape{300, 1000}}) {
      std::vector<PendingReceive> receives;
      std::vector<PendingSend> sends;
      for (int tag = 0; tag < 4; ++tag) {
        receives.push_back(rank.comm.receive_async(shape, DType::float32, other, tag));
      }
      for (int tag = 0; tag < 4; ++tag) {
        sends.push_back(rank.comm.send_async(Tensor::full(shape, tag, DType::float32, rank.device), other, tag));
      }
      for (const int tag : {2, 0, 3, 1}) {
        const Tensor got = receives[static_cast<std::size_t>(tag)].wait();
        EXPECT_EQ(got.device(), rank.device);
        const auto values = got.to_vector<float>();
        EXPECT_EQ(values, std::vector<float>(values.size(), static_cast<float>(tag)));
        EXPECT_EQ(got.shape(), shape);
      }
      for (const PendingSend& send : sends) {
        send.wait();
      }
    }
  });
}

// A send that waits until its receiver has taken the message ends while that waits for something else.
inline void expect_posted_receives_end_sends(Launch launch, const World& world) {
  launch(world, [](Rank& rank) {
    const Shape shape{300, 1000};  // more than what a transport keeps for a receiver that has not asked for it
    if (rank.index == 0) {
      rank.comm.send(Tensor::full(shape, 3, DType::float32, rank.device), 1, 0);
      rank.comm.send_number(7, 1, 1);
    } else {
      const PendingReceive receive = rank.comm.receive_async(shape, DType::float32, 0, 0);
      EXPECT_EQ(rank.comm.receive_number(0, 1), 7);
      EXPECT_EQ(receive.wait().to_vector<float>()[299999], 3);
    }
  });
}

// A receive that nobody waits for is withdrawn, and the messages that follow go to those that do.
inline void expect_withdrawn_receives_swallow_nothing(Launch launch, const World& world) {
  launch(world, [](Rank& rank) {
    for (const Shape& shape : {Shape{2}, Shape{300, 1000}}) {
      if (rank.index == 0) {
        rank.comm.barrier();
        for (const int value : {1, 2}) {
          rank.comm.send(Tensor::full(shape, value, DType::float32, rank.device), 1, 0);
        }
      } else {
        for (int unused = 0; unused < 3; ++unused) {
          static_cast<void>(rank.comm.receive_async(shape, DType::float32, 0, 0));
        }
        rank.comm.barrier();
        const auto next = [&] { return rank.comm.receive(shape, DType::float32, 0, 0).to_vector<float>()[0]; };
        EXPECT_EQ(next(), 1);
        EXPECT_EQ(next(), 2);
      }
      rank.comm.barrier();
    }
  });
}

}  // namespace stagecoach::test
