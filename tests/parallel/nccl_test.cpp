// Ranks that talk by NCCL. What is not NCCL's own runs here on the CPU, over a backend that is as strict as NCCL's
// streams; what is needs GPUs, and is left out where there are too few.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/base/phrases.h"
#include "core/cuda_backend.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/launch/mesh.h"
#include "parallel/launch/transports.h"
#include "tests/parallel/every_transport.h"
#include "tests/parallel/nccl_world.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::Launch;
using test::launch_on_test_backend;
using test::number;
using test::random_tensor;
using test::same_bytes;

Tensor made_by_rank(int r, const Shape& shape, Device device) {
  return random_tensor(shape, fmt::format("rank {}", r), DType::float32, device);
}

/// What a rank gets from all operations of all, for tensors short and long.
std::vector<Tensor> results_of(Rank& rank) {
  std::vector<Tensor> results;
  const auto keep = [&](const Tensor& tensor) { results.push_back(tensor.to(Device{}).clone()); };
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7, 5}, Shape{3, 50021}}) {
    const Tensor mine = made_by_rank(rank.index, shape, rank.device);
    Tensor tensor = mine.clone();
    rank.comm.all_reduce(tensor);
    keep(tensor);
    tensor = mine.clone();
    rank.comm.reduce(tensor, rank.world - 1);
    keep(tensor);
    tensor = mine.clone();
    rank.comm.broadcast(tensor, rank.world - 1);
    keep(tensor);
    for (const Tensor& theirs : rank.comm.all_gather(mine)) {
      keep(theirs);
    }
  }
  const Tensor part = rank.comm.reduce_scatter(made_by_rank(rank.index, {rank.world, 777}, rank.device));
  keep(part);
  Tensor whole = Tensor::empty({rank.world, 777}, part.dtype(), rank.device);
  rank.comm.all_gather_into(whole, part);
  keep(whole);
  RowCounts counts;  // rows for each rank, and from it
  for (int r = 0; r < rank.world; ++r) {
    counts.push_back((rank.index + r) % 3);
  }
  const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  keep(rank.comm.all_to_all(made_by_rank(rank.index, {rows, 9}, rank.device), counts, counts));
  rank.comm.barrier();
  return results;
}

/// The same on all ranks, one after another.
std::vector<std::vector<Tensor>> results_by(Launch launch_by, const World& world) {
  std::vector<std::vector<Tensor>> all(static_cast<std::size_t>(world.ranks));
  launch_by(world, [&](Rank& rank) { all[static_cast<std::size_t>(rank.index)] = results_of(rank); });
  return all;
}

void expect_same(const std::vector<std::vector<Tensor>>& got, const std::vector<std::vector<Tensor>>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].size(), wanted[r].size());
    for (std::size_t i = 0; i < got[r].size(); ++i) {
      EXPECT_TRUE(same_bytes(got[r][i], wanted[r][i])) << "rank " << r << ", result " << i;
    }
  }
}

class NcclRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, NcclRanks, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(NcclRanks, GetTheSameBytesAsThreads) {
  const World world{.ranks = GetParam()};
  expect_same(results_by(launch_on_test_backend, world), results_by(launch, world));
}

// Every rank sends first, and all to all: a channel that a receive or a send could hold up for others would hang.
TEST_P(NcclRanks, SendToAllAndReceiveFromAllInAnyOrder) {
  launch_on_test_backend({.ranks = GetParam()}, [](Rank& rank) {
    constexpr int kTags = 5;
    for (unsigned round = 0; round < 4; ++round) {
      std::vector<PendingSend> sends;
      std::vector<int> others;
      for (int other = 0; other < rank.world; ++other) {
        for (int tag = 0; other != rank.index && tag < kTags; ++tag) {
          sends.push_back(
              rank.comm.send_async(made_by_rank(rank.index * kTags + tag, {tag, 300}, rank.device), other, tag));
          rank.comm.send_number(rank.index + 0.1 * tag, other, tag);
          others.push_back(other);
        }
      }
      std::shuffle(others.begin(), others.end(), std::mt19937(100 * round + static_cast<unsigned>(rank.index)));
      std::vector<int> tags(static_cast<std::size_t>(rank.world));
      for (const int from : others) {
        const int tag = tags[static_cast<std::size_t>(from)]++;  // of one rank, in the order of its sends
        const Tensor got = rank.comm.receive({tag, 300}, DType::float32, from, tag);
        EXPECT_TRUE(same_bytes(got, made_by_rank(from * kTags + tag, {tag, 300}, {})));
        EXPECT_EQ(rank.comm.receive_number(from, tag), from + 0.1 * tag);
      }
      Tensor sum = Tensor::full({1}, 1, DType::float32, rank.device);
      rank.comm.all_reduce(sum);  // while messages to slower ranks may still be under way
      EXPECT_EQ(sum.item(), rank.world);
      for (const PendingSend& send : sends) {
        send.wait();
        EXPECT_TRUE(send.completed());
      }
    }
  });
}

// A ring in which every rank posts first what it gets last: a receive holds up nothing but its own direction.
TEST_P(NcclRanks, PostedReceivesHoldUpNothingElse) {
  if (GetParam() == 1) {
    return;
  }
  launch_on_test_backend({.ranks = GetParam()}, [](Rank& rank) {
    const int next = (rank.index + 1) % rank.world;
    const int before = (rank.index + rank.world - 1) % rank.world;
    const PendingReceive receive = rank.comm.receive_async({1000}, DType::float32, before, 3);
    rank.comm.barrier();
    if (rank.index > 0) {
      static_cast<void>(receive.wait());
    }
    rank.comm.send(made_by_rank(rank.index, {1000}, rank.device), next, 3);
    if (rank.index == 0) {
      EXPECT_TRUE(same_bytes(receive.wait(), made_by_rank(before, {1000}, {})));
    }
  });
}

TEST(Nccl, PostedReceivesGetTheirMessages) {
  test::expect_posted_receives_get_their_messages(launch_on_test_backend, {.ranks = 2});
}

TEST(Nccl, PostedReceivesLetASendThatWaitsEnd) {
  test::expect_posted_receives_end_sends(launch_on_test_backend, {.ranks = 2});
}

TEST(Nccl, ReceivesThatNobodyWaitsForSwallowNothing) {
  test::expect_withdrawn_receives_swallow_nothing(launch_on_test_backend, {.ranks = 2});
}

// By its own all-reduce, which the test's backend makes from the last rank to the first.
TEST(Nccl, NativeSumsAreTheBackends) {
  const auto sum_by = [](ReduceKind kind) {
    std::vector<Tensor> sums(3);
    launch_on_test_backend({.ranks = 3, .reduce = kind}, [&](Rank& rank) {
      Tensor& sum = sums[static_cast<std::size_t>(rank.index)];
      sum = made_by_rank(rank.index, {1000}, rank.device);
      rank.comm.all_reduce(sum);
      const auto group = rank.comm.split(0, rank.index);
      group->all_reduce(sum);  // a group sums as its world does
    });
    EXPECT_TRUE(same_bytes(sums[0], sums[2]));
    return sums[0];
  };
  const Tensor ordered = sum_by(ReduceKind::ordered);
  const Tensor native = sum_by(ReduceKind::native);
  EXPECT_FALSE(same_bytes(native, ordered));
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_NEAR(native.to_vector<float>()[i], ordered.to_vector<float>()[i], 1e-4);
  }
}

// The bootstrap connects ranks, and passes on nothing when tensors move.
TEST(Nccl, TensorsMakeNoControlMessages) {
  constexpr int kToConnect = 2;  // an introduction per direction
  const BootstrapServer* bootstrap = nullptr;
  const auto body = [&](Rank& rank) {
    const int other = 1 - rank.index;
    for (int i = 0; i < 1000; ++i) {
      const PendingReceive receive = rank.comm.receive_async({2}, DType::float32, other, i);
      rank.comm.send(number(rank), other, i);
      static_cast<void>(receive.wait());
    }
    Tensor sum = number(rank);
    for (int i = 0; i < 100; ++i) {
      rank.comm.all_reduce(sum);
    }
    EXPECT_LE(bootstrap->messages(), kToConnect);
  };
  launch_on_test_backend({.ranks = 2}, body, [&](const BootstrapServer& server) { bootstrap = &server; });
}

// What one rank does is known to the other only by its error.
TEST(Nccl, RanksThatBringOtherTypesNameThem) {
  const auto reduce = [](Rank& rank) {
    Tensor sum = rank.index == 0 ? Tensor::zeros({2}, DType::float32, rank.device)
                                 : Tensor::zeros({3}, DType::float64, rank.device);
    rank.comm.all_reduce(sum);
  };
  EXPECT_TRUE(fails_with<CommError>({"all_reduce (float"},
                                    [&] { launch_on_test_backend({.ranks = 2, .timeout = 30}, reduce); }));
  EXPECT_TRUE(fails_with<CommError>({"rank 1: receive from rank 0, tag 4 (float32[2]): no answer"}, [] {
    launch_on_test_backend({.ranks = 2, .timeout = 0.3}, [](Rank& rank) {
      if (rank.index == 1) {
        static_cast<void>(rank.comm.receive({2}, DType::float32, 0, 4));
      }
    });
  }));
}

TEST(Nccl, ANumberIsOneControlMessage) {
  constexpr int kNumbers = 100;
  const BootstrapServer* bootstrap = nullptr;
  const auto body = [&](Rank& rank) {
    for (int i = 0; i < kNumbers; ++i) {
      if (rank.index == 0) {
        rank.comm.send_number(i, 1, 0);
      } else {
        EXPECT_EQ(rank.comm.receive_number(0, 0), i);
      }
    }
    EXPECT_LE(bootstrap->messages(), kNumbers);
  };
  launch_on_test_backend({.ranks = 2}, body, [&](const BootstrapServer& server) { bootstrap = &server; });
}

TEST(Nccl, GroupsSplitAndSplitAgain) {
  launch_on_test_backend({.ranks = 12}, [](Rank& rank) {
    Mesh mesh(rank.comm, {.data = 4, .pipeline = 3}, rank_order_from_text("tp-pp-dp"));
    EXPECT_EQ(mesh.pipeline().rank() + 3 * mesh.data().rank(), rank.index);
    Tensor sum = Tensor::full({1}, rank.index, DType::float32, rank.device);
    mesh.pipeline().all_reduce(sum);
    EXPECT_EQ(sum.item(), 9 * (rank.index / 3) + 3);
    const auto backwards = mesh.pipeline().split(-7, -mesh.pipeline().rank());
    EXPECT_EQ(backwards->rank(), 2 - mesh.pipeline().rank());
    backwards->barrier();
  });
}

TEST(Nccl, ASecondThreadSumsBesideMessages) {
  launch_on_test_backend({.ranks = 3}, [](Rank& rank) {
    CommThread comm_thread(rank.comm);
    Tensor sum = Tensor::full({100000}, rank.index, DType::float32, rank.device);
    const auto pending = comm_thread.submit("sum", [&](Communicator& comm) { comm.all_reduce(sum); });
    const int next = (rank.index + 1) % 3;
    for (int i = 0; i < 20; ++i) {
      const auto sent = rank.comm.send_async(made_by_rank(i, {50}, rank.device), next, 0);
      EXPECT_TRUE(
          same_bytes(rank.comm.receive({50}, DType::float32, (rank.index + 2) % 3, 0), made_by_rank(i, {50}, {})));
      sent.wait();
    }
    pending.wait();
    EXPECT_EQ(sum.to_vector<float>()[99999], 3);
  });
}

class NcclWaits : public ::testing::TestWithParam<test::Wait> {};
const auto kNameOfWait = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Waiting, NcclWaits, ::testing::ValuesIn(test::kWaits), kNameOfWait);
INSTANTIATE_TEST_SUITE_P(WaitingHereOnly, NcclWaits,
                         ::testing::Values(test::Wait{"duplicate", [](Rank& rank) { rank.comm.duplicate(); }}),
                         kNameOfWait);

TEST_P(NcclWaits, EndWhenARankFails) { test::expect_failure_ends(launch_on_test_backend, GetParam()); }

TEST_P(NcclWaits, EndAtTheDeadline) { test::expect_deadline_ends(launch_on_test_backend, GetParam(), 0.5); }

// NCCL knows no types. What it would do to a message of another length nobody knows; here the backend says so.
TEST(Nccl, AMessageOfAnotherLengthEndsTheRun) {
  // Either end may notice.
  EXPECT_TRUE(fails_with<CommError>({"rank 0", "tag 4", "(float", "another size"}, [] {
    launch_on_test_backend({.ranks = 2, .timeout = 30}, [](Rank& rank) {
      rank.index == 0 ? rank.comm.send(number(rank), 1, 4)
                      : static_cast<void>(rank.comm.receive({2}, DType::float64, 0, 4));
    });
  }));
}

// A receive that nobody waited for cannot be withdrawn, and would get a message of another type.
TEST(Nccl, AReceiveThatNobodyWaitsForMustFitTheNext) {
  EXPECT_TRUE(fails_with<CommError>(
      {"rank 1: receive from rank 0, tag 4", "of the same shape and type, got float32[2]", "cannot cancel a receive"},
      [] {
        launch_on_test_backend({.ranks = 2, .timeout = 30}, [](Rank& rank) {
          if (rank.index == 1) {
            static_cast<void>(rank.comm.receive_async({3}, DType::float32, 0, 4));
            static_cast<void>(rank.comm.receive({2}, DType::float32, 0, 4));
          }
          rank.comm.barrier();
        });
      }));
}

TEST(Nccl, WithoutAGpuIsRefusedInOneLine) {
  if (nccl::is_built_in() && test::has_cuda()) {
    GTEST_SKIP() << "there is a GPU";
  }
  const char* why = nccl::is_built_in() ? "cuda cannot be used" : "transport nccl: this build has no NCCL";
  EXPECT_TRUE(fails_with<UsageError>({why}, [] {
    launch({.ranks = 1, .transport = Transport::nccl, .device = DeviceType::cuda}, [](Rank&) { FAIL(); });
  }));
}

class NcclOnCuda : public ::testing::Test {
 protected:
  /// Leaves the test out unless there are so many GPUs.
  static int missing(int gpus) { return nccl::is_built_in() && test::has_cuda() ? gpus - cuda::gpu_count() : gpus; }
  static World world_of(int ranks) {
    return {.ranks = ranks, .transport = Transport::nccl, .device = DeviceType::cuda, .gpus = ranks};
  }
  static void expect_same_bytes_as_threads(int ranks) {
    World threads = world_of(ranks);
    threads.transport = Transport::thread;
    expect_same(results_by(launch, world_of(ranks)), results_by(launch, threads));
  }
};

#define STAGECOACH_NEEDS_GPUS(gpus)                                                                   \
  if (missing(gpus) > 0) {                                                                            \
    GTEST_SKIP() << "needs NCCL and " << counted(gpus, "GPU") << "; " << missing(gpus) << " too few"; \
  }

TEST_F(NcclOnCuda, OneRankGetsTheSameBytesAsAThread) {
  STAGECOACH_NEEDS_GPUS(1);
  expect_same_bytes_as_threads(1);
}

TEST_F(NcclOnCuda, OneRankSplitsAndDuplicates) {
  STAGECOACH_NEEDS_GPUS(1);
  launch(world_of(1), [](Rank& rank) {
    const auto group = rank.comm.split(0, 0);
    CommThread comm_thread(*group);
    Tensor sum = Tensor::full({10}, 2, DType::float32, rank.device);
    comm_thread.submit("sum", [&](Communicator& comm) { comm.all_reduce(sum); }).wait();
    EXPECT_EQ(sum.to_vector<float>()[9], 2);
  });
}

TEST_F(NcclOnCuda, MoreRanksThanGpusAreRefused) {
  STAGECOACH_NEEDS_GPUS(1);
  EXPECT_TRUE(fails_with<UsageError>({"NCCL does not allow two ranks on one GPU"}, [] {
    launch(world_of(cuda::gpu_count() + 1), [](Rank&) { FAIL() << "nothing runs"; });
  }));
}

TEST_F(NcclOnCuda, TwoRanksGetTheSameBytesAsThreads) {
  STAGECOACH_NEEDS_GPUS(2);
  expect_same_bytes_as_threads(2);
}

TEST_F(NcclOnCuda, TwoRanksSendToEachOther) {
  STAGECOACH_NEEDS_GPUS(2);
  launch(world_of(2), [](Rank& rank) {
    const int other = 1 - rank.index;
    for (int tag = 0; tag < 10; ++tag) {
      const auto sent = rank.comm.send_async(made_by_rank(rank.index, {1 << tag, 500}, rank.device), other, tag);
      EXPECT_TRUE(same_bytes(rank.comm.receive({1 << tag, 500}, DType::float32, other, tag).to(Device{}),
                             made_by_rank(other, {1 << tag, 500}, {})));
      sent.wait();
    }
  });
}

TEST_F(NcclOnCuda, TwoRanksEndWhenOneFails) {
  STAGECOACH_NEEDS_GPUS(2);
  EXPECT_TRUE(fails_with<Error>({"rank 0: the disk is on fire"}, [&] {
    launch(world_of(2), [&](Rank& rank) {
      if (rank.index == 0) {
        throw Error("the disk is on fire");
      }
      EXPECT_TRUE(fails_with<CommError>({"rank 0 has failed"}, [&] { rank.comm.barrier(); }));
    });
  }));
}

}  // namespace
}  // namespace stagecoach
