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
    {"reduce_scatter",
     [](Rank& rank) { rank.comm.reduce_scatter(Tensor::zeros({rank.world}, DType::float32, rank.device)); }},
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
                                         "stopped, as rank 0 has failed", "the disk is on fire"},
                                        [&] { wait.run(rank); }));
    });
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << "long before the timeout";
}

/// Rank 0 says nothing for `timeout` seconds.
inline void expect_deadline_ends(Launch launch, const Wait& wait, double timeout) {
  const std::string within = fmt::format("within {} s", timeout);
  EXPECT_TRUE(fails_with<CommError>(
      {"rank 1", wait.name, "in the backward of stage 3, micro-batch 9", within.c_str(), "--timeout"}, [&] {
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

}  // namespace stagecoach::test
