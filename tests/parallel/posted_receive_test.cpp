// Receives that are posted before they are waited for. Run by mpirun these tests have processes as ranks.

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "core/cuda_backend.h"
#include "parallel/comm/activity.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/every_transport.h"
#include "tests/parallel/worlds.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;
using test::world_of;

constexpr Link kSlowestLink{.latency = 500, .bytes_per_second = 4};
const Shape kLongShape{2000};  // 8000 bytes: longer than what is sent eagerly; 2000 s on the link

World virtual_world() {
  World world = world_of(2);
  world.clock = ClockKind::virtual_time;
  world.network = kSlowestLink;
  return world;
}

/// As if the rank had waited for others until `time`.
void skip_to(Rank& rank, double time) { Waiting(rank.comm.clock()).until(time); }

/// By the virtual clock it is `time`, plus the little that the test itself takes.
void expect_time(Rank& rank, double time) {
  EXPECT_GE(rank.comm.clock().now(), time);
  EXPECT_LT(rank.comm.clock().now(), time + 5);
}

TEST(PostedReceives, GetTheirMessages) {
  STAGECOACH_NEEDS_RANKS(2);
  test::expect_posted_receives_get_their_messages(launch, world_of(2));
}

TEST(PostedReceives, LetASendThatWaitsEnd) {
  STAGECOACH_NEEDS_RANKS(2);
  test::expect_posted_receives_end_sends(launch, world_of(2));
}

TEST(PostedReceives, ThatAreWithdrawnSwallowNothing) {
  STAGECOACH_NEEDS_RANKS(2);
  test::expect_withdrawn_receives_swallow_nothing(launch, world_of(2));
}

// A message whose receive is posted early travels while the receiver computes.
TEST(PostedReceives, OverlapByTheVirtualClock) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(virtual_world(), [](Rank& rank) {
    if (rank.index == 0) {
      skip_to(rank, 20);
      rank.comm.send(Tensor::zeros(kLongShape, DType::float32, rank.device), 1, 0);
      expect_time(rank, 20 + 2500);
      return;
    }
    const PendingReceive receive = rank.comm.receive_async(kLongShape, DType::float32, 0, 0);
    skip_to(rank, 1000);
    static_cast<void>(receive.wait());
    expect_time(rank, 20 + 2500);
  });
}

// Posted late, it starts late; and so the sender that waits for it ends late.
TEST(PostedReceives, ThatAreLateHoldUpTheMessageByTheVirtualClock) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(virtual_world(), [](Rank& rank) {
    if (rank.index == 0) {
      skip_to(rank, 20);
      rank.comm.send(Tensor::zeros(kLongShape, DType::float32, rank.device), 1, 0);
    } else {
      skip_to(rank, 1000);
      static_cast<void>(rank.comm.receive(kLongShape, DType::float32, 0, 0));
    }
    expect_time(rank, 1000 + 2500);
  });
}

TEST(PostedReceives, ShortMessagesDoNotWaitForThemByTheVirtualClock) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(virtual_world(), [](Rank& rank) {
    if (rank.index == 0) {
      rank.comm.send(Tensor::zeros({500}, DType::float32, rank.device), 1, 0);
    } else {
      skip_to(rank, 2000);
      static_cast<void>(rank.comm.receive({500}, DType::float32, 0, 0));
    }
    expect_time(rank, 2000);  // it was there at 1000
  });
}

// One after another on the link, whatever the order of the waits; both ways at once.
TEST(PostedReceives, ShareALinkByTheVirtualClock) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(virtual_world(), [](Rank& rank) {
    const int other = 1 - rank.index;
    std::vector<PendingReceive> receives;
    for (int tag = 0; tag < 3; ++tag) {
      receives.push_back(rank.comm.receive_async(kLongShape, DType::float32, other, tag));
    }
    std::vector<PendingSend> sends;
    for (int tag = 0; tag < 3; ++tag) {
      skip_to(rank, 100 * tag);
      sends.push_back(rank.comm.send_async(Tensor::zeros(kLongShape, DType::float32, rank.device), other, tag));
    }
    static_cast<void>(receives[1].wait());
    expect_time(rank, 4000 + 500);
    static_cast<void>(receives[0].wait());
    expect_time(rank, 4000 + 500);
    sends[1].wait();
    expect_time(rank, 4000 + 500);
    sends[2].wait();
    expect_time(rank, 6000 + 500);
    static_cast<void>(receives[2].wait());
    sends[0].wait();
    expect_time(rank, 6000 + 500);
  });
}

TEST(PostedReceives, NameWhereTheyWerePostedAndWhereTheyAreWaitedFor) {
  STAGECOACH_NEEDS_THREADS();
  EXPECT_TRUE(fails_with<CommError>({"rank 1: receive from rank 0, tag 7, in the backward of stage 3, micro-batch 9",
                                     "posted in the receive_backward of stage 3, micro-batch 9"},
                                    [] {
                                      launch({.ranks = 2, .timeout = 0.05}, [](Rank& rank) {
                                        if (rank.index == 1) {
                                          std::optional<PendingReceive> receive;
                                          {
                                            const Activity posting("receive_backward", 3, 9);
                                            receive = rank.comm.receive_async({2}, DType::float32, 0, 7);
                                          }
                                          const Activity waiting("backward", 3, 9);
                                          static_cast<void>(receive->wait());
                                        }
                                      });
                                    }));
}

// Between threads on two GPUs the tensor is copied; the sender writes to its own only after that.
TEST(PostedReceives, AreCopiedBetweenGpusBeforeTheSenderGoesOn) {
  if (!test::has_cuda() || cuda::gpu_count() < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  const Shape shape{300, 1000};
  const auto message = [&](Device device) { return random_tensor(shape, "a message", DType::float32, device); };
  launch({.ranks = 2, .device = DeviceType::cuda}, [&](Rank& rank) {
    for (const bool posted_first : {true, false, true, false}) {
      if (rank.index == 0) {
        Tensor tensor = message(rank.device);
        if (posted_first) {
          rank.comm.barrier();
        }
        const PendingSend sent = rank.comm.send_async(tensor, 1, 0);
        if (!posted_first) {
          rank.comm.barrier();
        }
        sent.wait();
        tensor.fill(-1);
        continue;
      }
      std::optional<PendingReceive> receive;
      if (posted_first) {
        receive = rank.comm.receive_async(shape, DType::float32, 0, 0);
      }
      rank.comm.barrier();
      if (!posted_first) {
        receive = rank.comm.receive_async(shape, DType::float32, 0, 0);
      }
      const Tensor got = receive->wait();
      EXPECT_EQ(got.device(), rank.device);
      EXPECT_TRUE(same_bytes(got.to(Device{}), message(Device{})));
    }
  });
}

// Between threads on one GPU it is handed over. Its memory is not used again while the receiver has it.
TEST(PostedReceives, ShareTheMemoryOfOneGpu) {
  if (!test::has_cuda()) {
    GTEST_SKIP() << test::why_no_cuda();
  }
  const Shape shape{300, 1000};
  constexpr int kRounds = 10;
  std::vector<const void*> sent(kRounds);
  launch({.ranks = 2, .device = DeviceType::cuda, .gpus = 1}, [&](Rank& rank) {
    for (int round = 0; round < kRounds; ++round) {
      if (rank.index == 0) {
        {
          const Tensor tensor = Tensor::full(shape, round, DType::float32, rank.device);
          sent[static_cast<std::size_t>(round)] = tensor.raw_data();
          rank.comm.send(tensor, 1, 0);
        }
        const Tensor other = Tensor::full(shape, -1, DType::float32, rank.device);
        rank.comm.barrier();
        continue;
      }
      const Tensor got = rank.comm.receive(shape, DType::float32, 0, 0);
      rank.comm.barrier();
      EXPECT_EQ(got.device(), rank.device);
      EXPECT_EQ(got.raw_data(), sent[static_cast<std::size_t>(round)]);
      EXPECT_EQ(got.to_vector<float>(), std::vector<float>(300'000, static_cast<float>(round)));
    }
  });
}

}  // namespace
}  // namespace stagecoach
