#include "parallel/advise/step_bound.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace stagecoach {
namespace {

/// Work of a rank, all micro-batches of one pass through one stage.
struct Work {
  double head = 0;     // seconds before which it cannot begin
  double seconds = 0;  // that it takes
  double tail = 0;     // seconds that the step takes at least after its end
};

/// Returns the least seconds of a step in which a rank has this work.
double least_seconds_of_rank(std::vector<Work> works) {
  std::sort(works.begin(), works.end(), [](const Work& a, const Work& b) { return a.tail > b.tail; });
  double least = 0;
  for (const Work& earliest : works) {
    double sum = 0;
    for (const Work& work : works) {
      if (work.head >= earliest.head) {
        sum += work.seconds;
        least = std::max(least, earliest.head + sum + work.tail);
      }
    }
  }
  return least;
}

/// The heads and tails of the passes through each stage, one micro-batch after the other.
class Passes {
 public:
  Passes(const Placement& placement, const std::vector<StageSeconds>& stages, int microbatches, bool splits_backward,
         const StepRest& rest)
      : stages_(stages),
        microbatches_(microbatches),
        splits_(splits_backward),
        forward_(stages.size()),
        backward_(stages.size()) {
    const std::size_t last = stages.size() - 1;
    for (std::size_t s = 0; s <= last; ++s) {
      ends_.push_back(rest.reductions[s] + rest.updates[static_cast<std::size_t>(placement.stage_to_rank[s])]);
      backward_[s].tail = ends_[s] + (splits_ ? least_weight(s) : 0);
      if (s > 0) {
        forward_[s].head = forward_[s - 1].head + stages[s - 1].forward + rest.messages[s - 1];
        backward_[s].tail =
            std::max(backward_[s].tail, rest.messages[s - 1] + backward_of(s - 1) + backward_[s - 1].tail);
      }
    }
    backward_[last].head = forward_[last].head + stages[last].forward;
    forward_[last].tail = backward_of(last) + backward_[last].tail;
    for (std::size_t s = last; s-- > 0;) {
      backward_[s].head = backward_[s + 1].head + backward_of(s + 1) + rest.messages[s];
      forward_[s].tail = rest.messages[s] + stages[s + 1].forward + forward_[s + 1].tail;
    }
  }

  /// Returns the work of `stages`, which are on one rank.
  std::vector<Work> work_of(const std::vector<int>& stages) const {
    std::vector<Work> works;
    for (const int number : stages) {
      const auto s = static_cast<std::size_t>(number);
      const StageSeconds& stage = stages_[s];
      const double input = microbatches_ * stage.backward_input;
      const double weight = microbatches_ * stage.backward_weight + stage.copy + (microbatches_ - 1) * stage.accumulate;
      works.push_back({forward_[s].head, microbatches_ * stage.forward, forward_[s].tail});
      works.push_back({backward_[s].head, splits_ ? input : input + weight, backward_[s].tail});
      if (splits_) {
        works.push_back({backward_[s].head + stage.backward_input, weight, ends_[s]});
      }
    }
    return works;
  }

  /// Returns the least seconds of a step in which the rank of `stages` keeps at most `most` micro-batches at once, each
  /// counted once per stage.
  double least_seconds_with(const std::vector<int>& stages, int most) const {
    double kept = 0;
    double end = std::numeric_limits<double>::infinity();
    for (const int number : stages) {
      const auto s = static_cast<std::size_t>(number);
      kept += microbatches_ * (backward_[s].head - forward_[s].head + stages_[s].backward_input + least_weight(s));
      end = std::min(end, ends_[s]);
    }
    return forward_[static_cast<std::size_t>(stages.front())].head + kept / most + end;
  }

 private:
  struct Pass {
    double head = 0;
    double tail = 0;
  };

  double least_weight(std::size_t s) const {
    const StageSeconds& stage = stages_[s];
    return stage.backward_weight + (microbatches_ == 1 ? stage.copy : std::min(stage.copy, stage.accumulate));
  }
  /// Returns the seconds after which a backward's gradient can go to the stage before.
  double backward_of(std::size_t s) const { return stages_[s].backward_input + (splits_ ? 0 : least_weight(s)); }

  const std::vector<StageSeconds>& stages_;
  int microbatches_;
  bool splits_;
  std::vector<double> ends_;  // of each stage: its reduction and the update
  std::vector<Pass> forward_;
  std::vector<Pass> backward_;
};

}  // namespace

Placement placement_of(const ScheduleKind& kind, int ranks, int chunks) {
  return kind.is_v_shaped ? v_placement(ranks) : round_robin_placement(ranks * chunks, ranks);
}

double least_step_seconds(const ScheduleKind& kind, const ScheduleSizes& sizes, const std::vector<StageSeconds>& stages,
                          const StepRest& rest) {
  const Placement placement = placement_of(kind, sizes.ranks, sizes.chunks);
  const Passes passes(placement, stages, sizes.microbatches, kind.splits_backward, rest);
  double least = 0;
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    const std::vector<int> its_stages = placement.stages_of(rank);
    least = std::max({least, least_seconds_of_rank(passes.work_of(its_stages)),
                      passes.least_seconds_with(its_stages, kind.peak_activations(sizes, rank))});
  }
  constexpr double kRounding = 1 - 1e-9;
  return kRounding * least;
}

}  // namespace stagecoach
