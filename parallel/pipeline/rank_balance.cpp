#include "parallel/pipeline/rank_balance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace stagecoach {
namespace {

constexpr int kMaxSteps = 2'000'000;  // of branch and bound

/// The layers' costs, and the loads of ranks and stages of a split.
class Loads {
 public:
  Loads(const std::vector<double>& costs, const Placement& placement) : placement_(placement), before_{0} {
    std::partial_sum(costs.begin(), costs.end(), std::back_inserter(before_));
    ranks_ = *std::max_element(placement.stage_to_rank.begin(), placement.stage_to_rank.end()) + 1;
  }

  std::size_t layers() const { return before_.size() - 1; }
  std::size_t stages() const { return placement_.stage_to_rank.size(); }
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_); }
  std::size_t rank_of(std::size_t stage) const { return static_cast<std::size_t>(placement_.stage_to_rank[stage]); }
  double sum(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  /// Smaller differences are due to rounding.
  double rounding() const { return 1e-12 * before_.back(); }

  /// Returns the sums of the ranks' stages, where stage s ends before layer ends[s].
  std::vector<double> rank_seconds(const std::vector<std::size_t>& ends) const {
    std::vector<double> loads(ranks());
    for (std::size_t s = 0; s < ends.size(); ++s) {
      loads[rank_of(s)] += sum(s == 0 ? 0 : ends[s - 1], ends[s]);
    }
    return loads;
  }

 private:
  const Placement& placement_;
  std::vector<double> before_;  // prefix sums
  int ranks_ = 0;
};

/// What is compared of two splits, in this order: the slowest rank, the slowest stage, and how unequal the stages are.
struct Slowness {
  double rank = 0;
  double stage = 0;
  double squares = 0;  ///< the sum of the squares of all stages, which is least for equal ones

  bool is_below(const Slowness& other, double rounding) const {
    if (std::abs(rank - other.rank) > rounding) {
      return rank < other.rank;
    }
    if (std::abs(stage - other.stage) > rounding) {
      return stage < other.stage;
    }
    return squares < other.squares * (1 - 1e-12);
  }
  Slowness with(double load, double cost) const {
    return {std::max(rank, load), std::max(stage, cost), squares + cost * cost};
  }
};

Slowness slowness_of(const Loads& loads, const std::vector<std::size_t>& ends) {
  const std::vector<double> rank_seconds = loads.rank_seconds(ends);
  Slowness all{*std::max_element(rank_seconds.begin(), rank_seconds.end())};
  for (std::size_t s = 0; s < ends.size(); ++s) {
    all = all.with(0, loads.sum(s == 0 ? 0 : ends[s - 1], ends[s]));
  }
  return all;
}

/// Moves layers as long as that makes the loads of the ranks, from the slowest to the fastest, smaller in the order of
/// a dictionary, and no stage slower than `limit`.
std::vector<std::size_t> climb(const Loads& loads, std::vector<std::size_t> ends, double limit) {
  const auto sorted_loads = [&] {
    std::vector<double> sorted = loads.rank_seconds(ends);
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    return sorted;
  };
  const auto is_below = [&](const std::vector<double>& a, const std::vector<double>& b) {
    std::size_t r = 0;
    while (r < a.size() && std::abs(a[r] - b[r]) <= loads.rounding()) {
      ++r;
    }
    return r < a.size() && a[r] < b[r];
  };
  /// Moves the ends of stages `first` to `last` by one layer, if every stage keeps one.
  const auto move = [&](std::size_t first, std::size_t last, bool later) {
    const std::size_t bound = later ? ends[last + 1] : (first == 0 ? 0 : ends[first - 1]);
    if (later ? ends[last] + 1 >= bound : ends[first] <= bound + 1) {
      return false;
    }
    std::for_each(ends.begin() + static_cast<std::ptrdiff_t>(first),
                  ends.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                  [&](std::size_t& end) { later ? ++end : --end; });
    return true;
  };
  std::vector<double> best = sorted_loads();
  for (bool found = true; found;) {
    found = false;
    for (std::size_t first = 0; first + 1 < ends.size(); ++first) {
      for (std::size_t last = first; last + 1 < ends.size(); ++last) {
        for (const bool later : {false, true}) {
          if (!move(first, last, later)) {
            continue;
          }
          std::vector<double> tried = sorted_loads();
          if (is_below(tried, best) && slowness_of(loads, ends).stage <= limit + loads.rounding()) {
            best = std::move(tried);
            found = true;
          } else {
            move(first, last, !later);
          }
        }
      }
    }
  }
  return ends;
}

/// Looks through all splits, stage by stage, and skips those that cannot be better than the best one known.
class BranchAndBound {
 public:
  BranchAndBound(const Loads& loads, std::vector<std::size_t> best, double limit)
      : loads_(loads),
        limit_(limit + loads.rounding()),
        best_(std::move(best)),
        slowness_(slowness_of(loads, best_)),
        ends_(best_.size()),
        is_last_(best_.size()),
        rank_loads_(loads.ranks()) {
    std::vector<bool> seen(loads.ranks());
    for (std::size_t s = best_.size(); s-- > 0;) {
      is_last_[s] = !seen[loads.rank_of(s)];
      seen[loads.rank_of(s)] = true;
    }
  }

  /// Looks twice, as each order finds better splits of some large models. The second time it also replaces an equally
  /// good split, by the one with the longest early stages.
  std::vector<std::size_t> run() {
    for (const bool longest_first : {false, true}) {
      longest_first_ = longest_first;
      steps_ = 0;
      slowness_.squares = longest_first ? std::numeric_limits<double>::infinity() : slowness_.squares;
      visit(0, {.ranks = static_cast<double>(loads_.ranks()), .seconds = loads_.sum(0, loads_.layers())}, {});
    }
    return best_;
  }

 private:
  /// The ranks that still get a stage, and the costs of their stages, those to come included.
  struct Open {
    double ranks = 0;
    double seconds = 0;
  };

  /// Tries all ends of `stage`; `so_far` is of the stages before it.
  void visit(std::size_t stage, const Open& open, const Slowness& so_far) {
    if (stage == ends_.size()) {
      best_ = ends_;
      slowness_ = so_far;
      return;
    }
    const std::size_t begin = stage == 0 ? 0 : ends_[stage - 1];
    const std::size_t longest = loads_.layers() - (ends_.size() - stage - 1);  // every later stage gets a layer
    double& load = rank_loads_[loads_.rank_of(stage)];
    const double before = load;
    const auto slowness_with = [&](std::size_t end) {
      load = before + loads_.sum(begin, end);
      return so_far.with(load, loads_.sum(begin, end));
    };
    const auto may_end_at = [&](std::size_t end) {
      return loads_.sum(begin, end) <= limit_ && slowness_with(end).is_below(slowness_, loads_.rounding());
    };
    const std::size_t shortest = stage + 1 == ends_.size() ? longest : begin + 1;
    std::size_t bound = shortest;
    while (bound <= longest && may_end_at(bound)) {  // if it may not, nor may a longer stage
      ++bound;
    }
    for (std::size_t i = shortest; i < bound && ++steps_ <= kMaxSteps; ++i) {
      const std::size_t end = longest_first_ ? shortest + bound - 1 - i : i;
      if (!may_end_at(end)) {  // a better split has been found in the meantime
        continue;
      }
      const Slowness now = slowness_with(end);
      const Open left = is_last_[stage] ? Open{open.ranks - 1, open.seconds - load} : open;
      if (left.seconds <= left.ranks * slowness_.rank + loads_.rounding()) {
        ends_[stage] = end;
        visit(stage + 1, left, now);
      }
    }
    load = before;
  }

  const Loads& loads_;
  double limit_;  // of each stage
  std::vector<std::size_t> best_;
  Slowness slowness_;  // of the best
  std::vector<std::size_t> ends_;
  std::vector<bool> is_last_;  // of its rank
  std::vector<double> rank_loads_;
  bool longest_first_ = false;
  int steps_ = 0;
};

}  // namespace

Split balance_ranks(const std::vector<double>& costs, const Placement& placement, const Split& start, double limit) {
  const Loads loads(costs, placement);
  std::vector<std::size_t> ends;
  std::partial_sum(start.begin(), start.end(), std::back_inserter(ends));
  const double stage_limit = limit * slowness_of(loads, ends).stage;
  ends = BranchAndBound(loads, climb(loads, ends, stage_limit), stage_limit).run();
  Split split(ends.begin(), ends.end());
  std::adjacent_difference(split.begin(), split.end(), split.begin());
  return split;
}

}  // namespace stagecoach
