// Messages, operations of all, groups. Run by mpirun these tests have processes as ranks
// (tests/parallel/CMakeLists.txt).

#include "parallel/comm/communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "core/allocator.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/mesh.h"
#include "tests/parallel/every_transport.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;
using test::world_of;

/// What rank `r` brings: the same wherever it is made.
Tensor rank_tensor(int r, const Shape& shape, Device device = {}) {
  return random_tensor(shape, fmt::format("rank {}", r), DType::float32, device);
}

/// The sum over `world` ranks, in their order.
Tensor sum_over(int world, const Shape& shape) {
  std::vector<float> sum = rank_tensor(0, shape).to_vector<float>();
  for (int r = 1; r < world; ++r) {
    const auto more = rank_tensor(r, shape).to_vector<float>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += more[i];
    }
  }
  return Tensor::from(sum, shape);
}

class Ranks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { STAGECOACH_NEEDS_RANKS(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(World, Ranks, ::testing::Values(1, 2, 3, 4, 8, 32));

TEST_P(Ranks, EachRunsOnce) {
  STAGECOACH_NEEDS_THREADS();
  std::atomic<int> sum{0};
  launch(world_of(GetParam()), [&](Rank& rank) {
    EXPECT_EQ(rank.world, GetParam());
    EXPECT_EQ(rank.comm.rank(), rank.index);
    EXPECT_EQ(rank.comm.size(), GetParam());
    EXPECT_EQ(rank.device, (Device{DeviceType::cpu, rank.index}));
    sum += 1 + rank.index;
  });
  EXPECT_EQ(sum, GetParam() * (GetParam() + 1) / 2);
}

TEST_P(Ranks, PassMessagesAround) {
  if (GetParam() == 1) {
    return;
  }
  launch(world_of(GetParam()), [](Rank& rank) {
    const int next = (rank.index + 1) % rank.world;
    const int before = (rank.index + rank.world - 1) % rank.world;
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 2}, Shape{900}, Shape{30, 1000}}) {
      const PendingSend sent = rank.comm.send_async(rank_tensor(rank.index, shape, rank.device), next, 5);
      rank.comm.send_number(rank.index, next, 5);
      const Tensor got = rank.comm.receive(shape, DType::float32, before, 5);
      EXPECT_EQ(got.device(), rank.device);
      EXPECT_TRUE(same_bytes(got, rank_tensor(before, shape)));
      EXPECT_EQ(rank.comm.receive_number(before, 5), before);
      sent.wait();
      EXPECT_TRUE(sent.completed());
    }
  });
}

TEST_P(Ranks, AllReduceSumsInTheOrderOfTheRanks) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{7, 5}, Shape{1000}, Shape{3, 5003}}) {
    const Tensor wanted = sum_over(GetParam(), shape);
    launch(world_of(GetParam()), [&](Rank& rank) {
      Tensor tensor = rank_tensor(rank.index, shape, rank.device);
      rank.comm.all_reduce(tensor);
      EXPECT_TRUE(same_bytes(tensor, wanted)) << "rank " << rank.index;
    });
  }
}

TEST_P(Ranks, ReduceSumsInTheOrderOfTheRanksOnOneOfThem) {
  const Shape shape{7, 501};
  const Tensor wanted = sum_over(GetParam(), shape);
  launch(world_of(GetParam()), [&](Rank& rank) {
    const int root = rank.world - 1;
    Tensor tensor = rank_tensor(rank.index, shape, rank.device);
    rank.comm.reduce(tensor, root);
    EXPECT_TRUE(same_bytes(tensor, rank.index == root ? wanted : rank_tensor(rank.index, shape)));
  });
}

// The sum of halves is that of floats, rounded once.
TEST_P(Ranks, ReductionsOfHalvesAreRoundedAtTheEnd) {
  const int world = GetParam();
  const auto halves = [](int r, std::int64_t count) {
    std::vector<Half> all;
    for (const float value : rank_tensor(r, {count}).to_vector<float>()) {
      all.push_back(to_half(value));
    }
    return all;
  };
  for (const std::int64_t part : {0, 1, 7, 100, 3000}) {
    const std::int64_t count = world * part;
    std::vector<float> sum(static_cast<std::size_t>(count), -0.0F);
    for (int r = 0; r < world; ++r) {
      const auto more = halves(r, count);
      std::transform(more.begin(), more.end(), sum.begin(), sum.begin(),
                     [](Half x, float s) { return s + to_float(x); });
    }
    std::vector<Half> rounded;
    std::transform(sum.begin(), sum.end(), std::back_inserter(rounded), to_half);
    const Tensor wanted = Tensor::from(rounded, {count});
    launch(world_of(world), [&](Rank& rank) {
      const Tensor mine = Tensor::from(halves(rank.index, count), {count}, rank.device);
      EXPECT_TRUE(same_bytes(rank.comm.reduce_scatter(mine), wanted.narrow(rank.index * part, part)));
      Tensor tensor = mine.clone();
      rank.comm.all_reduce(tensor);
      EXPECT_TRUE(same_bytes(tensor, wanted)) << "rank " << rank.index;
    });
  }
}

TEST_P(Ranks, BroadcastGatherAndScatter) {
  const int world = GetParam();
  const Shape shape{world, 777};
  launch(world_of(world), [&](Rank& rank) {
    for (const int root : {0, world - 1}) {
      Tensor tensor = rank_tensor(rank.index, shape, rank.device);
      rank.comm.broadcast(tensor, root);
      EXPECT_TRUE(same_bytes(tensor, rank_tensor(root, shape)));
    }
    const auto all = rank.comm.all_gather(rank_tensor(rank.index, shape, rank.device));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world));
    for (int r = 0; r < world; ++r) {
      EXPECT_TRUE(same_bytes(all[static_cast<std::size_t>(r)], rank_tensor(r, shape)));
      EXPECT_EQ(all[static_cast<std::size_t>(r)].device(), rank.device);
    }
    const Tensor part = rank.comm.reduce_scatter(rank_tensor(rank.index, shape, rank.device));
    EXPECT_TRUE(same_bytes(part, sum_over(world, shape).narrow(rank.index, 1)));
    Tensor whole = Tensor::zeros(shape, DType::float32, rank.device);
    rank.comm.all_gather_into(whole, part);
    EXPECT_TRUE(same_bytes(whole, sum_over(world, shape)));
    Tensor mine = whole.narrow(rank.index, 1);  // already in its place
    mine.fill(rank.index);
    rank.comm.all_gather_into(whole, mine);
    for (int r = 0; r < world; ++r) {
      EXPECT_TRUE(same_bytes(whole.narrow(r, 1), Tensor::full({1, 777}, r)));
    }
    rank.comm.barrier();
  });
}

/// How many rows rank `from` sends to rank `to` below: different numbers, and none between some.
std::int64_t rows_between(int from, int to) { return (from + 2 * to) % 4 * (1 + to % 2 * 300); }

TEST_P(Ranks, ExchangeRowsByTheirCounts) {
  const int world = GetParam();
  const auto rows_for = [](int from, int to) {
    return random_tensor({rows_between(from, to), 3, 5}, fmt::format("from {} to {}", from, to), DType::float32);
  };
  launch(world_of(world), [&](Rank& rank) {
    RowCounts send_rows;
    RowCounts receive_rows;
    std::vector<Tensor> mine;
    for (int other = 0; other < world; ++other) {
      send_rows.push_back(rows_between(rank.index, other));
      receive_rows.push_back(rows_between(other, rank.index));
      mine.push_back(rows_for(rank.index, other));
    }
    EXPECT_EQ(rank.comm.exchange_counts(send_rows), receive_rows);
    Tensor rows = Tensor::empty({std::accumulate(send_rows.begin(), send_rows.end(), std::int64_t{0}), 3, 5},
                                DType::float32, rank.device);
    std::int64_t start = 0;
    for (const Tensor& part : mine) {
      rows.narrow(start, part.size(0)).copy_from(part);
      start += part.size(0);
    }
    const Tensor received = rank.comm.all_to_all(rows, send_rows, receive_rows);
    EXPECT_EQ(received.device(), rank.device);
    start = 0;
    for (int other = 0; other < world; ++other) {
      const Tensor wanted = rows_for(other, rank.index);
      EXPECT_TRUE(same_bytes(received.narrow(start, wanted.size(0)), wanted)) << other << " to " << rank.index;
      start += wanted.size(0);
    }
    EXPECT_EQ(received.size(0), start);
    EXPECT_TRUE(same_bytes(rank.comm.all_to_all(received, receive_rows, send_rows), rows)) << "and back";
  });
}

TEST_P(Ranks, CountTheBytesOfAnAllToAllByReceiver) {
  const int world = GetParam();
  launch(world_of(world), [&](Rank& rank) {
    RowCounts send_rows;
    RowCounts receive_rows;
    std::map<int, double> wanted;
    for (int other = 0; other < world; ++other) {
      send_rows.push_back(rows_between(rank.index, other));
      receive_rows.push_back(rows_between(other, rank.index));
      if (other != rank.index && send_rows.back() > 0) {
        wanted[other] = 16.0 * static_cast<double>(send_rows.back());
      }
    }
    const std::int64_t count = std::accumulate(send_rows.begin(), send_rows.end(), std::int64_t{0});
    rank.comm.all_to_all(Tensor::zeros({count, 2}, DType::float64, rank.device), send_rows, receive_rows);
    EXPECT_EQ(rank.comm.bytes_sent(), wanted);
  });
}

TEST_P(Ranks, RefuseCountsThatDoNotFitTheRows) {
  launch(world_of(GetParam()), [](Rank& rank) {
    const auto ranks = static_cast<std::size_t>(rank.world);
    const Tensor rows = Tensor::zeros({2 * rank.world, 3}, DType::float32, rank.device);
    const auto refuses = [&](const RowCounts& send_rows, const RowCounts& receive_rows, const char* why) {
      return fails_with<Error>({"all_to_all", why}, [&] { rank.comm.all_to_all(rows, send_rows, receive_rows); });
    };
    const RowCounts two_each(ranks, 2);
    EXPECT_TRUE(refuses(RowCounts(ranks, 1), two_each, "add up to the rows of float32["));
    EXPECT_TRUE(refuses(two_each, RowCounts(ranks + 1, 2), "one count per rank"));
    EXPECT_TRUE(refuses(two_each, RowCounts(ranks, -1), "one count per rank"));
    EXPECT_TRUE(refuses(two_each, RowCounts(ranks, 3), "keeps for itself, 2, got 3"));
  });
}

TEST_P(Ranks, BytesSentAreThoseOfMessagesAndOfTheAlgorithmsOfLink) {
  const int p = GetParam();
  launch(world_of(p), [p](Rank& rank) {
    const int next = (rank.index + 1) % p;
    const Shape shape{p, 25};
    const double bytes = 100 * p;
    const auto sent_in = [&](const auto& call) {
      auto before = rank.comm.bytes_sent();
      Tensor tensor = Tensor::zeros(shape, DType::float32, rank.device);
      call(tensor);
      auto after = rank.comm.bytes_sent();
      return after[next] - before[next];
    };
    EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.all_reduce(x); }), 2 * (p - 1) * bytes / p);
    EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.reduce_scatter(x); }), (p - 1) * bytes / p);
    EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.all_gather(x); }), (p - 1) * bytes);
    EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.all_gather_into(x, x.narrow(rank.index, 1)); }), (p - 1) * bytes / p);
    EXPECT_EQ(sent_in([&](Tensor&) { rank.comm.barrier(); }), 0);
    if (p > 1) {
      EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.reduce(x, 0); }), next == 0 ? bytes : 0);
      EXPECT_EQ(sent_in([&](Tensor& x) { rank.comm.broadcast(x, 0); }), rank.index == 0 ? bytes : 0);
      const double message = sent_in([&](Tensor& x) {
        const PendingSend sent = rank.comm.send_async(x, next, 0);
        rank.comm.receive(shape, DType::float32, (rank.index + p - 1) % p, 0);
        sent.wait();
      });
      EXPECT_EQ(message, bytes);
      const auto group = rank.comm.split(0, 0);
      EXPECT_EQ(group->duplicate()->bytes_sent(), rank.comm.bytes_sent()) << "one count per rank";
    }
  });
}

TEST_P(Ranks, BarriersHoldAll) {
  STAGECOACH_NEEDS_THREADS();
  std::atomic<int> arrived{0};
  launch(world_of(GetParam()), [&](Rank& rank) {
    for (int round = 1; round <= 5; ++round) {
      ++arrived;
      rank.comm.barrier();
      EXPECT_GE(arrived, round * rank.world);
      rank.comm.barrier();
    }
  });
}

// The library's own sum is not that of the ranks in their order, but close to it; halves are summed in order.
TEST_P(Ranks, NativeSumsAreWithinTheirPromise) {
  World world = world_of(GetParam());
  world.reduce = ReduceKind::native;
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{7, 5}, Shape{3, 50021}}) {
    const auto wanted = sum_over(GetParam(), shape).to_vector<float>();
    launch(world, [&](Rank& rank) {
      Tensor tensor = rank_tensor(rank.index, shape, rank.device);
      rank.comm.all_reduce(tensor);
      const auto got = tensor.to_vector<float>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], 1e-5 * rank.world) << "element " << i << " on rank " << rank.index;
      }
      Tensor half = Tensor::full({3}, 1 + rank.index, DType::float16, rank.device);
      rank.comm.all_reduce(half);
      EXPECT_EQ(to_float(half.to_vector<Half>()[2]), rank.world * (rank.world + 1) / 2);
    });
  }
}

TEST(Messages, KeepTheirOrderUnderOneTagAndNotBetweenTags) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(world_of(2), test::expect_order);
}

TEST(Messages, HandMemoryOverWithoutACopy) {
  STAGECOACH_NEEDS_THREADS();
  launch({.ranks = 2}, [](Rank& rank) {
    static std::atomic<const void*> sent{nullptr};
    if (rank.index == 0) {
      const Tensor tensor = Tensor::full({1000}, 3, DType::float32, rank.device);
      sent = tensor.raw_data();
      rank.comm.send(tensor, 1, 0);
      return;
    }
    const Tensor got = rank.comm.receive({1000}, DType::float32, 0, 0);
    EXPECT_EQ(got.raw_data(), sent);
    EXPECT_EQ(got.device(), rank.device) << "it is this rank's tensor now";
    EXPECT_EQ(got.to_vector<float>()[999], 3);
  });
}

TEST(Messages, OfAnotherShapeOrTypeAreRefusedByBothNames) {
  STAGECOACH_NEEDS_THREADS();
  const auto run = [](const Shape& shape, DType dtype) {
    launch({.ranks = 2, .timeout = 5}, [&](Rank& rank) {
      if (rank.index == 0) {
        rank.comm.send_async(Tensor::zeros({2, 3}, DType::float32, rank.device), 1, 4).wait();
      } else {
        rank.comm.receive(shape, dtype, 0, 4);
      }
    });
  };
  EXPECT_TRUE(fails_with<CommError>({"rank 1: receive from rank 0, tag 4", "float32[3, 2]", "float32[2, 3]"}, [&] {
    run({3, 2}, DType::float32);
  }));
  EXPECT_TRUE(fails_with<CommError>({"float64[2, 3]", "float32[2, 3]"}, [&] { run({2, 3}, DType::float64); }));
}

TEST(Messages, ToNobodyAreRefused) {
  STAGECOACH_NEEDS_RANKS(2);
  launch(world_of(2), [](Rank& rank) {
    const Tensor tensor = Tensor::zeros({1}, DType::float32, rank.device);
    for (const int peer : {-1, 2, rank.index}) {
      EXPECT_TRUE(fails_with({"send", "another rank"}, [&] { rank.comm.send_async(tensor, peer, 0); }));
      EXPECT_TRUE(fails_with({"receive"}, [&] { rank.comm.receive_async({1}, DType::float32, peer, 0); }));
    }
    EXPECT_TRUE(fails_with({"tag -1"}, [&] { rank.comm.send_async(tensor, 1 - rank.index, -1); }));
    const Tensor elsewhere = Tensor::zeros({1}, DType::float32, {DeviceType::cpu, 77});
    EXPECT_TRUE(fails_with({"cpu:77"}, [&] { rank.comm.send_async(elsewhere, 1 - rank.index, 0); }));
  });
}

TEST(Groups, SplitByColourAndKey) {
  STAGECOACH_NEEDS_RANKS(6);
  launch(world_of(6), [](Rank& rank) {
    // Odd and even ranks, each backwards.
    const auto group = rank.comm.split(rank.index % 2, -rank.index);
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(group->rank(), 2 - rank.index / 2);
    Tensor sum = Tensor::full({1}, rank.index, DType::float32, rank.device);
    group->all_reduce(sum);
    EXPECT_EQ(sum.item(), rank.index % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
    const auto again = group->split(0, 0);
    EXPECT_EQ(again->size(), 3);
    again->barrier();
  });
}

TEST(Groups, AMeshNamesItsDirections) {
  STAGECOACH_NEEDS_RANKS(12);
  launch(world_of(12), [](Rank& rank) {
    Mesh mesh(rank.comm, {.data = 4, .pipeline = 3}, rank_order_from_text("tp-pp-dp"));
    EXPECT_EQ(mesh.data().size(), 4);
    EXPECT_EQ(mesh.pipeline().size(), 3);
    EXPECT_EQ(mesh.pipeline().rank() + 3 * mesh.data().rank(), rank.index);
    Tensor sum = Tensor::full({1}, rank.index, DType::float32, rank.device);
    mesh.pipeline().all_reduce(sum);
    EXPECT_EQ(sum.item(), 9 * (rank.index / 3) + 3) << "neighbours share a pipeline";
  });
}

TEST(Groups, AMeshMustFillTheWorld) {
  STAGECOACH_NEEDS_THREADS();
  EXPECT_TRUE(fails_with<UsageError>({"2 data x 2 pipeline", "expected 4 ranks, got 3"}, [] {
    launch({.ranks = 3}, [](Rank& rank) { Mesh(rank.comm, {.data = 2, .pipeline = 2}); });
  }));
  EXPECT_TRUE(fails_with<UsageError>(
      {"0 pipeline"}, [] { launch({.ranks = 3}, [](Rank& rank) { Mesh(rank.comm, {.data = 3, .pipeline = 0}); }); }));
}

}  // namespace
}  // namespace stagecoach
