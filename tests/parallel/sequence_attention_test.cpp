// Attention of tokens that are cut over ranks, against attention on one device and against one device that computes the
// same slices.

#include "parallel/sequence_parallel/sequence_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/transformer.h"
#include "parallel/launch/launch.h"
#include "parallel/sequence_parallel/sequence_layers.h"
#include "tests/parallel/worlds.h"
#include "tests/support/errors.h"
#include "tests/support/finite_differences.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::close;
using test::fails_with;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;
using test::world_of;

constexpr std::int64_t kCutSamples = 2;
constexpr std::int64_t kSequenceHeads = 8;
constexpr std::int64_t kSequenceWidth = 24;

struct SequenceCase {
  SequenceExchange exchange;
  AttentionMask mask;
};

std::string name_of(const SequenceCase& tested) {
  const char* names[] = {"all_gather", "ring", "all_to_all"};
  return std::string(names[static_cast<int>(tested.exchange)]) +
         (tested.mask == AttentionMask::causal ? "_causal" : "");
}

/// Returns a number of tokens of which each rank has an uneven number per part.
std::int64_t tokens_for(int ranks) { return 2LL * ranks * 5; }

class SequenceAttention : public ::testing::TestWithParam<std::tuple<int, SequenceCase>> {
 protected:
  void SetUp() override {
    STAGECOACH_NEEDS_RANKS(ranks());
    if (tested().exchange == SequenceExchange::all_to_all && kSequenceHeads % ranks() != 0) {
      GTEST_SKIP() << kSequenceHeads << " heads cannot be shared";
    }
  }
  static int ranks() { return std::get<0>(GetParam()); }
  static const SequenceCase& tested() { return std::get<1>(GetParam()); }

  /// What attention gives for qkv [N, T, 3 W], and the gradient of qkv for a random one of the result.
  struct Result {
    Tensor y;
    Tensor grad;
  };
  template <class Attend>
  static Result result_of(DType dtype, const Attend& attend) {
    const Tensor qkv = random_leaf({kCutSamples, tokens_for(ranks()), 3 * kSequenceWidth}, "qkv", dtype);
    const Tensor y = attend(qkv);
    backward(y, random_tensor(y.shape(), "upstream", dtype));
    return {y.detach(), qkv.grad()};
  }
  static Result result_of_slices(DType dtype) {
    return result_of(dtype, [](const Tensor& qkv) {
      return sliced_attention(qkv, kSequenceHeads, tested().mask, tested().exchange, ranks());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(
    Ranks, SequenceAttention,
    ::testing::Combine(::testing::Range(1, 9),
                       ::testing::Values(SequenceCase{SequenceExchange::all_gather, AttentionMask::none},
                                         SequenceCase{SequenceExchange::all_gather, AttentionMask::causal},
                                         SequenceCase{SequenceExchange::ring, AttentionMask::none},
                                         SequenceCase{SequenceExchange::ring, AttentionMask::causal},
                                         SequenceCase{SequenceExchange::all_to_all, AttentionMask::none},
                                         SequenceCase{SequenceExchange::all_to_all, AttentionMask::causal})),
    [](const auto& tested) {
      return fmt::format("{}_ranks_{}", std::get<0>(tested.param), name_of(std::get<1>(tested.param)));
    });

TEST_P(SequenceAttention, OfSlicesEqualsThatOfOneDevice) {
  const Result whole =
      result_of(DType::float64, [](const Tensor& qkv) { return attention(qkv, kSequenceHeads, tested().mask); });
  const Result slices = result_of_slices(DType::float64);
  EXPECT_TRUE(close(slices.y, whole.y, 1e-12, 1e-12));
  EXPECT_TRUE(close(slices.grad, whole.grad, 1e-12, 1e-12));
}

TEST_P(SequenceAttention, OfRanksHasTheBytesOfSlices) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Result wanted = result_of_slices(dtype);
    const TokenParts parts{ranks(), tested().mask};
    launch(world_of(ranks()), [&](Rank& rank) {
      const Tensor whole =
          random_tensor({kCutSamples, tokens_for(ranks()), 3 * kSequenceWidth}, "qkv", dtype, rank.device);
      const Tensor qkv = cut_tokens(whole, parts, rank.index).set_requires_grad(true);
      const Tensor y = sequence_attention(qkv, kSequenceHeads, tested().mask, tested().exchange,
                                          {.ranks = rank.world, .rank = rank.index, .comm = &rank.comm});
      const Tensor upstream =
          random_tensor({kCutSamples, tokens_for(ranks()), kSequenceWidth}, "upstream", dtype, rank.device);
      backward(y, cut_tokens(upstream, parts, rank.index));
      EXPECT_TRUE(same_bytes(y, cut_tokens(wanted.y, parts, rank.index))) << "rank " << rank.index;
      EXPECT_TRUE(same_bytes(qkv.grad(), cut_tokens(wanted.grad, parts, rank.index))) << "rank " << rank.index;
    });
  }
}

TEST_P(SequenceAttention, SendsTheBytesOfTheFormulas) {
  launch(world_of(ranks()), [](Rank& rank) {
    const double c = rank.world;
    const double features =
        static_cast<double>(kCutSamples * tokens_for(rank.world) * kSequenceWidth) / c * sizeof(float);
    const auto sent_in = [&](const auto& pass) {
      const auto sum = [&] {
        double all = 0;
        for (const auto& [to, bytes] : rank.comm.bytes_sent()) {
          all += bytes;
        }
        return all;
      };
      const double before = sum();
      pass();
      return sum() - before;
    };
    Tensor y;
    const double forward = sent_in([&] {
      const Tensor qkv = random_leaf({kCutSamples, tokens_for(rank.world) / rank.world, 3 * kSequenceWidth}, "qkv",
                                     DType::float32, rank.device);
      y = sequence_attention(qkv, kSequenceHeads, tested().mask, tested().exchange,
                             {.ranks = rank.world, .rank = rank.index, .comm = &rank.comm});
    });
    const double reverse = sent_in([&] { backward(y, y.detach().clone()); });
    switch (tested().exchange) {
      case SequenceExchange::all_gather:
        EXPECT_DOUBLE_EQ(forward, 2 * features * (c - 1));
        EXPECT_DOUBLE_EQ(reverse, forward);
        break;
      case SequenceExchange::ring:
        EXPECT_DOUBLE_EQ(forward, 2 * features * (c - 1));
        EXPECT_DOUBLE_EQ(reverse, forward + (c == 1 ? 0 : 2 * features * c));
        break;
      case SequenceExchange::all_to_all:
        EXPECT_DOUBLE_EQ(forward, 4 * features * (c - 1) / c);
        EXPECT_DOUBLE_EQ(reverse, forward);
        break;
    }
  });
}

TEST(SlicedAttention, HasTheGradientsOfFiniteDifferences) {
  for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
    test::check_gradients({},
                          [mask](const auto& x) { return sliced_attention(x[0], 2, mask, SequenceExchange::ring, 3); },
                          {random_tensor({2, 6, 3 * 4}, "qkv")});
  }
}

// Scores that exp cannot take, in one part of the keys and not in another.
TEST(SlicedAttention, MergesLargeScores) {
  Tensor qkv = random_tensor({1, 8, 3 * 2}, "qkv");
  double* values = qkv.mutable_data<double>();
  for (int token = 0; token < 8; ++token) {
    values[token * 6] = 40;                        // of the query
    values[token * 6 + 2] = token < 4 ? 50 : -50;  // of the key
  }
  const Tensor wanted = attention(qkv, 1);
  EXPECT_TRUE(close(sliced_attention(qkv, 1, AttentionMask::none, SequenceExchange::ring, 4), wanted, 1e-12, 1e-12));
}

// With a causal mask every rank has the same number of pairs of a query and a key that it sees.
TEST(TokenParts, AreEqualWork) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const TokenParts parts{ranks, AttentionMask::causal};
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(parts.part(rank, 0) + parts.part(rank, 1), 2 * ranks - 1);
    }
  }
}

TEST(TokenParts, ArePutBackTogether) {
  for (const AttentionMask mask : {AttentionMask::none, AttentionMask::causal}) {
    const TokenParts parts{3, mask};
    const Tensor x = random_tensor({2, 12, 5}, "x");
    Tensor whole = Tensor::zeros(x.shape(), x.dtype());
    for (int rank = 0; rank < 3; ++rank) {
      paste_tokens(cut_tokens(x, parts, rank), parts, rank, whole);
    }
    EXPECT_TRUE(same_bytes(whole, x));
  }
}

// A block of a transformer whose factory cuts the tokens: its output, and the gradients of its input.
TEST(SequenceLayers, MakeBlocksWithTheBytesOfSlices) {
  constexpr int kRanks = 4;
  STAGECOACH_NEEDS_RANKS(kRanks);
  const TokenParts parts{kRanks, AttentionMask::causal};
  const BlockSettings settings{.mask = AttentionMask::causal};
  const Tensor x = random_tensor({kCutSamples, 32, kSequenceWidth}, "x", DType::float32);
  TransformerBlock oracle(kSequenceWidth, kSequenceHeads, SequenceLayers(kRanks, SequenceExchange::ring), settings);
  oracle.materialize(1);
  const Tensor wanted = oracle.forward(x);
  EXPECT_EQ(wanted.shape(), oracle.output_shape(x.shape()));
  launch(world_of(kRanks), [&](Rank& rank) {
    TransformerBlock block(kSequenceWidth, kSequenceHeads, SequenceLayers(rank.comm, SequenceExchange::ring), settings);
    block.materialize(1, rank.device);
    const Tensor mine = cut_tokens(x.to(rank.device), parts, rank.index);
    EXPECT_TRUE(same_bytes(block.forward(mine), cut_tokens(wanted.detach(), parts, rank.index)));
  });
}

TEST(SequenceAttentionErrors, NameWhatTheRanksCannotShare) {
  const Tensor qkv = random_tensor({2, 6, 3 * 6}, "qkv");
  EXPECT_TRUE(fails_with<Error>({"number of heads that 4 ranks can share, got 3", "all-gather or ring"}, [&] {
    sequence_attention(qkv, 3, AttentionMask::none, SequenceExchange::all_to_all, {.ranks = 4});
  }));
  EXPECT_TRUE(fails_with<Error>({"tokens T that 4 parts can share", "[2, 6, 18]"},
                                [&] { sliced_attention(qkv, 3, AttentionMask::causal, SequenceExchange::ring, 2); }));
}

}  // namespace
}  // namespace stagecoach
