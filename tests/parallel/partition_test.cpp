// The partitioner: against all partitions there are, on a network whose best partition is known, and what it refuses.

#include "parallel/pipeline/partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "core/random.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

constexpr double kRounding = 1e-12;

/// The cost model once more, as its docstring has it, for every partition of the layers after some.
class BruteForce {
 public:
  BruteForce(const std::vector<LayerCost>& layers, int ranks, const Link& link) : layers_(layers), link_(link) {
    deal(0, ranks, 0, 0);
  }
  double seconds() const { return std::min_element(found_.begin(), found_.end(), faster)->seconds; }
  /// The fewest of a partition that is as fast as the fastest.
  int stages() const {
    int fewest = std::numeric_limits<int>::max();
    for (const Found& one : found_) {
      if (one.seconds <= seconds() * (1 + kRounding)) {
        fewest = std::min(fewest, one.stages);
      }
    }
    return fewest;
  }

 private:
  struct Found {
    double seconds;
    int stages;
  };
  static bool faster(const Found& a, const Found& b) { return a.seconds < b.seconds; }

  double message(double bytes) const {
    return link_.latency + (link_.bytes_per_second > 0 ? bytes / link_.bytes_per_second : 0);
  }
  double stage(std::size_t begin, std::size_t end, int n) const {
    double seconds = 0;
    double weights = 0;
    for (std::size_t i = begin; i < end; ++i) {
      seconds += layers_[i].seconds;
      weights += layers_[i].weight_bytes;
    }
    return (seconds + 2 * (n - 1) * message(weights / n)) / n;
  }
  void deal(std::size_t begin, int ranks, int stages, double slowest) {
    if (begin == layers_.size()) {
      if (ranks == 0) {
        found_.push_back({slowest, stages});
      }
      return;
    }
    const double before = begin > 0 ? 2 * message(layers_[begin - 1].output_bytes) : 0;
    for (std::size_t end = begin + 1; end <= layers_.size(); ++end) {
      for (int n = 1; n <= ranks; ++n) {
        deal(end, ranks - n, stages + 1, std::max({slowest, before, stage(begin, end, n)}));
      }
    }
  }

  const std::vector<LayerCost>& layers_;
  Link link_;
  std::vector<Found> found_;
};

void expect_as_good_as_brute_force(const std::vector<LayerCost>& layers, int ranks, const Link& link) {
  const BruteForce all(layers, ranks, link);
  const Partition best = partition(layers, ranks, link);
  EXPECT_NEAR(best.seconds, all.seconds(), kRounding * all.seconds());
  EXPECT_EQ(static_cast<int>(best.split.size()), all.stages());
  EXPECT_EQ(best.seconds, slowest_part(layers, best.split, best.replicas, link));
  EXPECT_EQ(std::accumulate(best.split.begin(), best.split.end(), 0), static_cast<int>(layers.size()));
  EXPECT_EQ(std::accumulate(best.replicas.begin(), best.replicas.end(), 0), ranks);
}

/// Every second one has small whole numbers, among which many partitions are equally good.
std::vector<LayerCost> random_layers(const Philox& random, std::uint64_t round, std::size_t count) {
  std::uint64_t next = 1000 * round;
  const auto cost = [&] { return round % 2 == 0 ? random.uniform(next++) : random.below(next++, 4); };
  std::vector<LayerCost> layers(count);
  for (LayerCost& layer : layers) {
    layer.seconds = cost();
    layer.output_bytes = cost();
    layer.weight_bytes = cost();
  }
  return layers;
}

Link random_link(const Philox& random, std::uint64_t round) {
  if (random.below(3 * round, 4) == 0) {
    return link_from_text("none");
  }
  return {0.2 * random.uniform(3 * round + 1), std::pow(10, 2 * random.uniform(3 * round + 2))};
}

TEST(Partition, IsTheBestOfAll) {
  const Philox costs(7, "costs");
  const Philox links(7, "links");
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto ranks = static_cast<int>(1 + round % 4);
    const std::vector<LayerCost> layers = random_layers(costs, round, 1 + round / 4 % 8);
    expect_as_good_as_brute_force(layers, ranks, random_link(links, round));
    ASSERT_FALSE(HasFailure()) << "round " << round << ": " << layers.size() << " layers, " << ranks << " ranks";
  }
}

// As differences of sums from the first layer, the weights of the last two would be nothing.
TEST(Partition, SeesSmallLayersBesideAHugeOne) {
  expect_as_good_as_brute_force({{0.5, 0, 1e25}, {2, 0, 3e9}, {1, 0, 3e9}}, 3, {0, 1e9});
}

/// VGG-16 (Simonyan and Zisserman 2015) on images of 224 x 224: a convolution goes with the pooling behind it.
/// A micro-batch of 64 at `rate` operations a second, with twice the work of the forward in the backward.
std::vector<LayerCost> vgg16(double rate) {
  constexpr double kBatch = 64;
  struct Layer {
    double inputs, outputs, kernel, size, size_after;
  };
  const std::vector<Layer> layers{
      {3, 64, 9, 224, 224},  {64, 64, 9, 224, 112},  {64, 128, 9, 112, 112}, {128, 128, 9, 112, 56},
      {128, 256, 9, 56, 56}, {256, 256, 9, 56, 56},  {256, 256, 9, 56, 28},  {256, 512, 9, 28, 28},
      {512, 512, 9, 28, 28}, {512, 512, 9, 28, 14},  {512, 512, 9, 14, 14},  {512, 512, 9, 14, 14},
      {512, 512, 9, 14, 7},  {25088, 4096, 1, 1, 1}, {4096, 4096, 1, 1, 1},  {4096, 1000, 1, 1, 1},
  };
  std::vector<LayerCost> costs;
  for (const Layer& layer : layers) {
    const double weights = layer.inputs * layer.outputs * layer.kernel;
    costs.push_back({3 * 2 * weights * layer.size * layer.size * kBatch / rate,
                     4 * layer.outputs * layer.size_after * layer.size_after * kBatch, 4 * weights});
  }
  return costs;
}

// "15-1" in table 1 of the paper: one rank has the linear layers, whose weights are too large to average on this link.
TEST(Partition, OfVgg16ReplicatesTheConvolutions) {
  const Link slow = link_from_text("20us,10Gbit/s");
  for (const int ranks : {4, 8}) {
    const Partition fast_ranks = partition(vgg16(1e14), ranks, slow);
    EXPECT_EQ(fast_ranks.split, (Split{13, 3}));
    EXPECT_EQ(fast_ranks.replicas, (std::vector<int>{ranks - 1, 1}));
    // Where computing takes longer than messages, that one rank has time for the last convolutions too.
    const Partition slow_ranks = partition(vgg16(7e12), ranks, slow);
    EXPECT_LT(slow_ranks.split.front(), 13);
    EXPECT_EQ(slow_ranks.replicas, (std::vector<int>{ranks - 1, 1}));
  }
}

double sum_of_seconds(const std::vector<LayerCost>& layers) {
  return std::accumulate(layers.begin(), layers.end(), 0.0,
                         [](double sum, const LayerCost& layer) { return sum + layer.seconds; });
}

// Three times 0.1 is a little more than 0.3: rounding must not make three stages of them.
TEST(Partition, OnAFreeLinkKeepsEveryRankBusy) {
  const Link none = link_from_text("none");
  for (const std::size_t count : {1, 3, 5, 12, 31}) {
    for (const int ranks : {1, 3, 4, 12}) {
      const Partition best = partition(std::vector<LayerCost>(count, {0.1, 1e6, 1e6}), ranks, none);
      EXPECT_DOUBLE_EQ(best.seconds, 0.1 * static_cast<double>(count) / ranks);
      EXPECT_EQ(best.replicas, std::vector<int>{ranks}) << "the fewest stages";
    }
  }
  const double ideal = sum_of_seconds(vgg16(7e12)) / 8;
  EXPECT_NEAR(partition(vgg16(7e12), 8, none).seconds, ideal, kRounding * ideal);
}

TEST(Partition, OnOneRankIsOneStage) {
  const Partition best = partition(vgg16(7e12), 1, link_from_text("20us,10Gbit/s"));
  EXPECT_EQ(best.split, Split{16});
  EXPECT_EQ(best.replicas, std::vector<int>{1});
  EXPECT_EQ(best.seconds, sum_of_seconds(vgg16(7e12)));
}

TEST(Partition, TakesAsLongAsItsSlowestPart) {
  const std::vector<LayerCost> layers{{6, 10, 30}, {2, 40, 90}, {1, 99, 99}};
  const Link link{1, 10};
  // Three replicas: 2 x 2 messages of 10 bytes, 2 seconds each. Two: 2 messages of 60 bytes, 7 seconds each.
  EXPECT_EQ(slowest_part(layers, {1, 2}, {3, 1}, link), (6 + 8) / 3.0);
  EXPECT_EQ(slowest_part(layers, {2, 1}, {2, 1}, link), (8 + 14) / 2.0);
  EXPECT_EQ(slowest_part(layers, {2, 1}, {1, 1}, link), 10) << "the message: 2 x (1 + 40 / 10)";
}

TEST(Partition, ReadsAProfile) {
  LayerProfile profile;
  profile.forward = 1;
  profile.backward_input = 2;
  profile.backward_weight = 4;
  profile.output_bytes = 8;
  profile.parameter_bytes = 16;
  const std::vector<LayerCost> costs = layer_costs({LayerProfile{}, profile}, Stage::Recompute::no);
  ASSERT_EQ(costs.size(), 2U);
  EXPECT_EQ(costs[1].seconds, 7);
  EXPECT_EQ(costs[1].output_bytes, 8);
  EXPECT_EQ(costs[1].weight_bytes, 16);
  EXPECT_EQ(layer_costs({profile}, Stage::Recompute::yes)[0].seconds, 8) << "the forward runs twice";
}

TEST(Partition, RefusesWhatCannotBeDealt) {
  const std::vector<LayerCost> good(2, {1, 1, 1});
  EXPECT_TRUE(fails_with<UsageError>({"at least one layer", "got none"}, [] { partition({}, 2, {}); }));
  EXPECT_TRUE(fails_with<UsageError>({"at least 1 rank, got 0"}, [&] { partition(good, 0, {}); }));
  EXPECT_TRUE(fails_with<UsageError>({"got -2"}, [&] { partition(good, -2, {}); }));
  for (const double bad : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const std::string shown = fmt::format("to be finite and at least 0, got {}", bad);
    EXPECT_TRUE(fails_with<UsageError>({"layer 1: expected seconds", shown.c_str()}, [&] {
      partition({{1, 1, 1}, {bad, 1, 1}}, 2, {});
    }));
    EXPECT_TRUE(fails_with<UsageError>({"layer 0: expected output_bytes", shown.c_str()}, [&] {
      partition({{1, bad, 1}, {1, 1, 1}}, 2, {});
    }));
    EXPECT_TRUE(fails_with<UsageError>({"layer 1: expected weight_bytes", shown.c_str()}, [&] {
      slowest_part({{1, 1, 1}, {1, 1, bad}}, {2}, {1}, {});
    }));
  }
}

TEST(Partition, OfOtherLayersHasNoSlowestPart) {
  const std::vector<LayerCost> layers(3, {1, 1, 1});
  for (const Split& split : {Split{}, Split{2}, Split{2, 2}, Split{4, -1}, Split{3, 0}}) {
    EXPECT_TRUE(fails_with<UsageError>({"split ", "3 layers"}, [&] { slowest_part(layers, split, {1, 1}, {}); }));
  }
  for (const std::vector<int>& replicas : {std::vector<int>{}, {1}, {1, 0}, {1, 1, 1}}) {
    EXPECT_TRUE(fails_with<UsageError>({"replicas ", "expected 2 numbers"}, [&] {
      slowest_part(layers, {2, 1}, replicas, {});
    }));
  }
}

}  // namespace
}  // namespace stagecoach
