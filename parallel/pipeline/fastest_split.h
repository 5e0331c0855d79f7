#pragma once
/// @file
/// Splits measured layers into stages, so that a step of a schedule is as fast as possible.

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns the split of `layers` with which `schedule`, lowered and legal, takes the least time according to
/// `simulate`, where messages and updates take none. Equal arguments give equal splits. Throws UsageError for more
/// stages than layers.
/// - Where every rank has one stage, that is the split with the fastest slowest stage (split_by_costs); the actions of
///   the schedule do not matter and may be missing.
/// - Where ranks have several stages, the slowest rank and the slowest stage both count: each micro-batch costs the sum
///   of a rank's stages, and while the pipeline fills and drains, ranks wait for single stages. So the candidates are
///   equal stages, and the splits with the fastest slowest rank whose stages are at most so much slower than they must
///   be (balance_ranks). From each of them, single layers move from one stage to another as long as that makes the step
///   faster. The result is no slower than any candidate, but not always the fastest of all splits. The moves end when
///   all simulated steps together have ten million actions, which takes a fraction of a second.
Split fastest_split(const std::vector<LayerProfile>& layers, const Schedule& schedule, Stage::Recompute recompute);

/// A split and the seconds of its step.
struct TimedSplit {
  double seconds = 0;
  Split split;
};

/// Returns the split to which single layers lead that move from one stage to another, with the borders between them, as
/// long as that makes a step faster; `seconds_of` says how long a step takes. Asks it for `tries` splits, of which it
/// subtracts those that it tried.
TimedSplit faster_by_moves(TimedSplit start, const std::function<double(const Split&)>& seconds_of, std::size_t& tries);

}  // namespace stagecoach
