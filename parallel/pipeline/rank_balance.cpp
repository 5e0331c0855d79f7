#include "parallel/pipeline/rank_balance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace stagecoach {
namespace {

constexpr int kMaxSteps = 2'000'000;  // of branch and bound

/// The layers' costs, and which rank has each stage.
class Loads {
 public:
  Loads(const std::vector<double>& costs, const Placement& placement) : placement_(placement), before_{0} {
    std::partial_sum(costs.begin(), costs.end(), std::back_inserter(before_));
    ranks_ = *std::max_element(placement.stage_to_rank.begin(), placement.stage_to_rank.end()) + 1;
  }

  std::size_t layers() const { return before_.size() - 1; }
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_); }
  std::size_t rank_of(std::size_t stage) const { return static_cast<std::size_t>(placement_.stage_to_rank[stage]); }
  double sum(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  /// Smaller differences are due to rounding.
  double rounding() const { return 1e-12 * before_.back(); }

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

/// Returns that of a split whose stage s ends before layer ends[s].
Slowness slowness_of(const Loads& loads, const std::vector<std::size_t>& ends) {
  std::vector<double> rank_loads(loads.ranks());
  Slowness all;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const double cost = loads.sum(s == 0 ? 0 : ends[s - 1], ends[s]);
    all = all.with(rank_loads[loads.rank_of(s)] += cost, cost);
  }
  return all;
}

/// Looks through all splits, stage by stage, and skips those that cannot be better than the best one known. Among
/// equally good ones it takes the one with the longest early stages, which it meets first.
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

  std::vector<std::size_t> run() {
    slowness_.squares = std::numeric_limits<double>::infinity();  // an equally good split replaces the first one
    visit(0, {.ranks = static_cast<double>(loads_.ranks()), .seconds = loads_.sum(0, loads_.layers())}, {});
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
    for (std::size_t end = bound; end-- > shortest && ++steps_ <= kMaxSteps;) {
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
  int steps_ = 0;
};

}  // namespace

Split balance_ranks(const std::vector<double>& costs, const Placement& placement, const Split& start, double limit) {
  const Loads loads(costs, placement);
  std::vector<std::size_t> ends;
  std::partial_sum(start.begin(), start.end(), std::back_inserter(ends));
  const double stage_limit = limit * slowness_of(loads, ends).stage;
  ends = BranchAndBound(loads, ends, stage_limit).run();
  Split split(ends.begin(), ends.end());
  std::adjacent_difference(split.begin(), split.end(), split.begin());
  return split;
}

}  // namespace stagecoach
