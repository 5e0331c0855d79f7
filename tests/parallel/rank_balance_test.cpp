// Splits for ranks that hold several stages, against all splits.

#include "parallel/pipeline/rank_balance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "parallel/pipeline/fastest_split.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {
namespace {

/// The slowest rank, and the slowest stage.
using Slowest = std::pair<double, double>;

Slowest slowest(const std::vector<double>& costs, const Placement& placement, const Split& split) {
  std::vector<double> ranks(placement.stage_to_rank.size());
  double stage = 0;
  auto layer = costs.begin();
  for (std::size_t s = 0; s < split.size(); ++s) {
    const double seconds = std::accumulate(layer, layer + split[s], 0.0);
    layer += split[s];
    stage = std::max(stage, seconds);
    ranks[static_cast<std::size_t>(placement.stage_to_rank[s])] += seconds;
  }
  return {*std::max_element(ranks.begin(), ranks.end()), stage};
}

/// Calls `see` with each split that begins with `begin` and whose beginnings all satisfy `may_begin`.
void for_each_split(
    int layers, int stages, const std::function<void(const Split&)>& see,
    const std::function<bool(const Split&)>& may_begin = [](const Split&) { return true; }, const Split& begin = {}) {
  if (stages == 0) {
    return see(begin);
  }
  for (int first = stages == 1 ? layers : 1; first + stages - 1 <= layers; ++first) {
    Split longer = begin;
    longer.push_back(first);
    if (may_begin(longer)) {
      for_each_split(layers - first, stages - 1, see, may_begin, longer);
    }
  }
}

/// Returns the best slowest rank and stage of all splits without a stage slower than `limit`.
Slowest best_of_all(const std::vector<double>& costs, const Placement& placement, double limit) {
  Slowest best{std::numeric_limits<double>::infinity(), 0};
  for_each_split(static_cast<int>(costs.size()), placement.stage_count(), [&](const Split& split) {
    if (const Slowest found = slowest(costs, placement, split); found.second <= limit) {
      best = std::min(best, found);
    }
  });
  return best;
}

struct Case {
  Placement placement;
  std::vector<double> costs;  // whole numbers, whose sums are exact
  std::string name;
};

/// A case of 2 to 4 ranks with 1 to 4 stages each, round-robin, in a V, or in any order, and up to 6 layers more.
Case random_case(std::uint64_t round) {
  const Philox random(5, "ranks");
  std::uint64_t at = 100 * round;
  const auto below = [&](std::uint32_t limit) { return static_cast<int>(random.below(at++, limit)); };
  Case one;
  const int ranks = 2 + below(3);
  const int stages = ranks * (1 + below(ranks == 4 ? 2 : 4));
  one.placement = round % 3 == 0 ? v_placement(ranks) : round_robin_placement(stages, ranks);
  for (std::size_t s = one.placement.stage_to_rank.size(); round % 3 == 2 && s-- > 1;) {  // shuffles them
    std::swap(one.placement.stage_to_rank[s],
              one.placement.stage_to_rank[static_cast<std::size_t>(below(static_cast<std::uint32_t>(s) + 1))]);
  }
  for (int i = one.placement.stage_count() + below(7); i > 0; --i) {
    one.costs.push_back(below(round % 2 == 0 ? 10 : 3));
  }
  one.name = fmt::format("costs {}, ranks {}", fmt::join(one.costs, ","), fmt::join(one.placement.stage_to_rank, ","));
  return one;
}

TEST(RankBalance, MakesTheSlowestRankAsFastAsCanBe) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto [placement, costs, name] = random_case(round);
    const Split split = split_by_costs(costs, placement);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), std::size_t{0}), costs.size()) << name;
    EXPECT_GE(*std::min_element(split.begin(), split.end()), 1) << name;
    const double no_limit = std::numeric_limits<double>::infinity();
    const Slowest best = best_of_all(costs, placement, no_limit);
    const Slowest found = slowest(costs, placement, split);
    EXPECT_EQ(found.first, best.first) << name;
    if (!has_one_stage_per_rank(placement)) {
      EXPECT_EQ(found.second, best.second) << name;
    }
  }
}

TEST(RankBalance, KeepsStagesBelowTheLimit) {
  for (std::uint64_t round = 0; round < 200; ++round) {
    const auto [placement, costs, name] = random_case(round);
    const int stages = placement.stage_count();
    const Split start = split_by_costs(costs, round_robin_placement(stages, stages));
    const double limit = slowest(costs, placement, start).second * 1.25;
    EXPECT_EQ(slowest(costs, placement, balance_ranks(costs, placement, start, 1.25)),
              best_of_all(costs, placement, limit))
        << name;
  }
}

/// Layers whose forward and both parts of the backward take equally long.
std::vector<LayerProfile> layers_of(const std::vector<double>& thirds) {
  std::vector<LayerProfile> layers;
  for (const double third : thirds) {
    layers.push_back({.forward = third, .backward_input = third, .backward_weight = third});
  }
  return layers;
}

/// 24 blocks with an embedding and a head.
std::vector<LayerProfile> transformer() {
  std::vector<double> thirds(26, 6e-3);
  thirds.front() = 0.5e-3;
  thirds.back() = 4e-3;
  auto layers = layers_of(thirds);
  layers.front().backward_input = 0;
  return layers;
}

Simulation simulated(const Schedule& schedule, const std::vector<LayerProfile>& layers, const Split& split,
                     Stage::Recompute recompute = Stage::Recompute::no) {
  return simulate(schedule, costs_of_stages(layers, split, recompute));
}

// The first and the last stage of a V are on one rank.
TEST(FastestSplit, RelievesTheRankOfTheEmbeddingAndTheHead) {
  const Schedule schedule = lower(make_schedule("zbv", 8, 16));
  const Split split = fastest_split(transformer(), schedule, Stage::Recompute::no);
  const Simulation equal = simulated(schedule, transformer(), split_by_layers(26, 16));
  const Simulation fastest = simulated(schedule, transformer(), split);
  EXPECT_NEAR(equal.idle, 0.277, 0.0005);
  EXPECT_LT(fastest.idle, 0.1705) << fmt::format("{}", fmt::join(split, ","));
  EXPECT_LT(fastest.seconds, 0.88 * equal.seconds);
}

// A step lasts at least as long as its slowest rank works. All splits whose slowest rank is faster than the step with
// fastest_split's are simulated.
TEST(FastestSplit, OfATransformerIsTheBestOfAll) {
  const Schedule schedule = lower(make_schedule("zbv", 8, 16));
  auto with_norm_and_pool = transformer();
  with_norm_and_pool.insert(
      with_norm_and_pool.end() - 1,
      {{.forward = 1e-4, .backward_input = 1e-4, .backward_weight = 1e-4}, {.forward = 1e-4, .backward_input = 1e-4}});
  for (const auto& [layers, idle] : {std::pair(transformer(), 0.16978), {with_norm_and_pool, 0.175}}) {
    const Simulation fastest = simulated(schedule, layers, fastest_split(layers, schedule, Stage::Recompute::no));
    EXPECT_NEAR(fastest.idle, idle, 1e-5);
    const std::vector<double> seconds = seconds_of_layers(layers, Stage::Recompute::no);
    const auto may_be_faster = [&](const Split& begin) {
      return schedule.microbatches * slowest(seconds, schedule, begin).first < fastest.seconds * (1 - 1e-9);
    };
    for_each_split(
        static_cast<int>(layers.size()), 16,
        [&](const Split& split) {
          EXPECT_GE(simulated(schedule, layers, split).seconds, fastest.seconds * (1 - 1e-9))
              << fmt::format("{}", fmt::join(split, ","));
        },
        may_be_faster);
  }
}

// Neither than equal stages nor than those whose slowest stage or slowest rank is the fastest.
TEST(FastestSplit, IsNoSlowerThanSimplerSplits) {
  const Philox random(7, "layers");
  std::uint64_t at = 0;
  for (const char* name : {"interleaved", "zbv", "foldx_aiao", "dualpipev", "interleaved-zb"}) {
    for (const auto recompute : {Stage::Recompute::no, Stage::Recompute::yes}) {
      std::vector<double> thirds(20);
      std::generate(thirds.begin(), thirds.end(), [&] { return 1 + static_cast<double>(random.below(at++, 8)); });
      const auto layers = layers_of(thirds);
      const Schedule schedule = lower(make_schedule(name, 4, 8, 2), {.sends_wait = find_schedule(name)->sends_wait});
      const double seconds = simulated(schedule, layers, fastest_split(layers, schedule, recompute), recompute).seconds;
      for (const Split& simpler : {split_by_layers(20, 8), split_by_costs(thirds, round_robin_placement(8, 8)),
                                   split_by_costs(thirds, schedule)}) {
        EXPECT_LE(seconds, simulated(schedule, layers, simpler, recompute).seconds * (1 + 1e-9)) << name;
      }
    }
  }
}

TEST(FastestSplit, NeedsOnlyThePlacementOfOneStagePerRank) {
  const auto layers = layers_of({1, 1, 4, 1, 1});
  EXPECT_EQ(fastest_split(layers, Schedule{round_robin_placement(3, 3)}, Stage::Recompute::no), (Split{2, 1, 2}));
  EXPECT_EQ(fastest_split(layers, Schedule{contiguous_placement({3, 1})}, Stage::Recompute::no), (Split{3, 2}));
}

// A recomputed layer weighs its forward twice.
TEST(FastestSplit, CountsTheRecomputedForward) {
  std::vector<LayerProfile> layers = layers_of({1, 1, 1});
  layers[0] = {.forward = 3};
  layers[2].backward_weight = 2;
  const Schedule schedule{round_robin_placement(2, 2)};
  EXPECT_EQ(fastest_split(layers, schedule, Stage::Recompute::no), (Split{2, 1}));   // 3 + 3 and 4
  EXPECT_EQ(fastest_split(layers, schedule, Stage::Recompute::yes), (Split{1, 2}));  // 6 and 4 + 5
}

// Too large for all splits: the searches end at their limits, which count steps and not time.
TEST(FastestSplit, OfALargeModelIsTheSameEveryTime) {
  std::vector<double> thirds(100);
  const Philox random(9, "large");
  for (std::size_t i = 0; i < thirds.size(); ++i) {
    thirds[i] = 1 + static_cast<double>(random.below(i, 100)) / 100;
  }
  const auto layers = layers_of(thirds);
  const Schedule schedule = lower(make_schedule("zbv", 16, 32));
  const Split split = fastest_split(layers, schedule, Stage::Recompute::no);
  EXPECT_EQ(split, fastest_split(layers, schedule, Stage::Recompute::no));
  EXPECT_LE(simulated(schedule, layers, split).seconds, simulated(schedule, layers, split_by_layers(100, 32)).seconds);
}

}  // namespace
}  // namespace stagecoach
