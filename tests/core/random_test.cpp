// The random generator: known answers, distributions, and independence of the order of drawing.

#include "core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace stagecoach {
namespace {

// The known answers of the authors' own library (Random123, kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox(0).block(0, 0), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint64_t kOnes = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(Philox(kOnes).block(kOnes, kOnes), (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822).block(0x85a308d3243f6a88, 0x0370734413198a2e),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, WordsAreThoseOfTheBlocksInOrder) {
  const Philox random(5, "words");
  for (std::uint64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(random.word(i), random.block(i / 4)[i % 4]);
  }
}

// A changed stream would change every result that was ever published from a seed.
TEST(Philox, NamedStreamsStayWhatTheyAre) {
  EXPECT_EQ(Philox(0, "weights").word(0), 0xc1ca3dcfU);
  EXPECT_EQ(Philox(1234, "shuffle").word(7), 0xc610aa19U);
}

constexpr std::uint64_t kDraws = 200'000;

/// n draws of mean `mean` and variance `variance` have a mean within 5 of its standard deviations.
void expect_mean(double sum, double mean, double variance) {
  EXPECT_NEAR(sum / kDraws, mean, 5 * std::sqrt(variance / kDraws));
}

TEST(Philox, UniformFillsItsRange) {
  const Philox random(1, "uniform");
  std::vector<int> cells(64);
  double sum = 0;
  double squares = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double value = random.uniform(i);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    ASSERT_EQ(value, static_cast<double>(static_cast<float>(value))) << "float and double must hold the same value";
    ++cells[static_cast<std::size_t>(value * 64)];
    sum += value;
    squares += value * value;
  }
  expect_mean(sum, 0.5, 1.0 / 12);
  expect_mean(squares, 1.0 / 3, 4.0 / 45);
  double chi_squared = 0;
  for (const int count : cells) {
    chi_squared += std::pow(count - kDraws / 64.0, 2) / (kDraws / 64.0);
  }
  EXPECT_NEAR(chi_squared, 63, 5 * std::sqrt(2 * 63)) << "64 cells";
}

TEST(Philox, UniformReachesNeitherTooFarNorTooLittle) {
  // The largest word gives the largest number, which must stay below 1 in float too.
  EXPECT_LT(static_cast<float>((0xffffffffU >> 8) * 0x1p-24), 1.0F);
  const Philox random(2, "uniform");
  double smallest = 1;
  double largest = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    smallest = std::min(smallest, random.uniform(i));
    largest = std::max(largest, random.uniform(i));
  }
  EXPECT_LT(smallest, 1e-4);
  EXPECT_GT(largest, 1 - 1e-4);
}

TEST(Philox, NormalHasTheMomentsOfTheNormalDistribution) {
  const Philox random(3, "normal");
  double sums[4] = {};
  double neighbours = 0;
  int beyond_two = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double value = random.normal(i);
    ASSERT_TRUE(std::isfinite(value)) << "draw " << i;
    double power = 1;
    for (double& sum : sums) {
      power *= value;
      sum += power;
    }
    neighbours += value * random.normal(i + 1);
    beyond_two += std::abs(value) > 2 ? 1 : 0;
  }
  expect_mean(sums[0], 0, 1);
  expect_mean(sums[1], 1, 2);
  expect_mean(sums[2], 0, 15);
  expect_mean(sums[3], 3, 96);
  expect_mean(neighbours, 0, 1);
  expect_mean(beyond_two, 0.0455003, 0.0434);
}

TEST(Philox, BelowStaysBelowItsBound) {
  const Philox random(4, "below");
  for (const std::uint32_t bound : {1U, 2U, 3U, 7U, 10U, 1000U, 0x80000001U, 0xffffffffU}) {
    for (std::uint64_t i = 0; i < 2000; ++i) {
      ASSERT_LT(random.below(i, bound), bound);
    }
  }
}

TEST(Philox, BelowGivesEachNumberAsOften) {
  const Philox random(4, "below");
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    ++counts[random.below(i, 7)];
  }
  for (const int count : counts) {
    expect_mean(count, 1.0 / 7, 6.0 / 49);
  }
  // 3 * 2^30 as bound: a draw of 32 bits modulo it would give the lower third twice as often.
  std::uint64_t low = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    low += random.below(i, 3U << 30) < 1U << 30 ? 1 : 0;
  }
  expect_mean(static_cast<double>(low), 1.0 / 3, 2.0 / 9);
}

TEST(Philox, PermutationHoldsEachNumberOnce) {
  for (const std::uint32_t count : {0U, 1U, 2U, 3U, 100U, 50'000U}) {
    std::vector<std::uint32_t> order = Philox(5, "order").permutation(count);
    ASSERT_EQ(order.size(), count);
    std::sort(order.begin(), order.end());
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(order[i], i);
    }
  }
}

TEST(Philox, PermutationsAreAllAsLikely) {
  std::vector<int> counts(24);
  constexpr int kRounds = 24'000;
  for (int seed = 0; seed < kRounds; ++seed) {
    const auto order = Philox(static_cast<std::uint64_t>(seed), "order").permutation(4);
    std::size_t rank = 0;  // Lehmer code
    for (std::size_t i = 0; i < 4; ++i) {
      const auto smaller = std::count_if(order.begin() + static_cast<long>(i), order.end(),
                                         [&](std::uint32_t later) { return later < order[i]; });
      rank = rank * (4 - i) + static_cast<std::size_t>(smaller);
    }
    ++counts[rank];
  }
  for (const int count : counts) {
    EXPECT_NEAR(count, kRounds / 24, 5 * std::sqrt(kRounds / 24.0));
  }
}

TEST(Philox, ANumberDoesNotDependOnTheOrderOfDrawing) {
  const Philox forwards(6, "order");
  const Philox backwards(6, "order");
  std::vector<double> first;
  for (std::uint64_t i = 0; i < 100; ++i) {
    first.push_back(forwards.uniform(i) + forwards.normal(i) + forwards.below(i, 100));
  }
  for (std::uint64_t i = 100; i-- > 0;) {
    EXPECT_EQ(backwards.uniform(i) + backwards.normal(i) + backwards.below(i, 100), first[i]);
  }
}

TEST(UniformNumbers, AreThoseOfTheStreamInAnyOrder) {
  const Philox random(3, "weights");
  UniformNumbers numbers(random);
  for (const std::uint64_t index : {5, 6, 7, 8, 9, 3, 0, 1, 2, 4, 40, 43, 44, 1}) {
    EXPECT_EQ(numbers[index], random.uniform(index)) << index;
  }
}

TEST(Philox, NamesAndSeedsGiveOtherStreams) {
  std::set<std::uint64_t> seen;
  std::size_t streams = 0;
  for (const char* name : {"", "a", "b", "ab", "ba", "layer 1", "layer 2", "weights", "shuffle"}) {
    for (const std::uint64_t seed : {0ULL, 1ULL, 2ULL, 1ULL << 32, ~0ULL}) {
      const Philox random(seed, name);
      seen.insert(random.word(0) | static_cast<std::uint64_t>(random.word(1)) << 32);
      ++streams;
    }
  }
  EXPECT_EQ(seen.size(), streams);
  EXPECT_EQ(Philox(7, "weights").word(3), Philox(7, std::string("weights")).word(3));
}

// Streams whose seeds or names are neighbours must not move together.
TEST(Philox, NeighbouringStreamsAreNotCorrelated) {
  const Philox here(1, "layer 1");
  for (const Philox& other : {Philox(2, "layer 1"), Philox(1, "layer 2")}) {
    double product = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      product += here.normal(i) * other.normal(i);
    }
    expect_mean(product, 0, 1);
  }
}

// One stream may give numbers of every kind: they come from different counters. The products are chosen so that one
// shared word shows: number i of the others would come from the block that holds words 4i … 4i+3.
TEST(Philox, UniformNormalAndBelowOfOneStreamAreNotCorrelated) {
  const Philox random(8, "all");
  double uniform_normal = 0;
  double uniform_below = 0;
  double below_normal = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double radius = random.uniform(4 * i) - 0.5;
    const double angle = random.uniform(4 * i + 1) - 0.5;
    const double normal = random.normal(i);
    const double below = random.below(i, 1U << 31) * 0x1p-31 - 0.5;
    uniform_normal += radius * (normal * normal - 1);
    uniform_below += angle * below;
    below_normal += (below * below - 1.0 / 12) * normal;
  }
  expect_mean(uniform_normal, 0, 1.0 / 6);
  expect_mean(uniform_below, 0, 1.0 / 144);
  expect_mean(below_normal, 0, 1.0 / 180);
}

}  // namespace
}  // namespace stagecoach
