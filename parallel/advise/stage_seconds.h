#pragma once
/// @file
/// What each action of a schedule takes, from the costs of layers.

#include <vector>

#include "parallel/advise/candidate.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The seconds of the parts of one stage.
struct StageSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double accumulate = 0;         ///< in all backwards of a step but the first
  double copy = 0;               ///< in the first: of the gradients into buckets
  double update = 0;             ///< once per step
  double clone = 0;              ///< of the weights, for one more version of them
  double update_once = 0;        ///< besides, of the whole rank
  double exchange_forward = 0;   ///< of `forward`: the exchanges with the tensor-parallel group
  double exchange_backward = 0;  ///< of `backward_input`
};

/// Returns the seconds of each stage of `split`. Its tensor-parallel ranks are connected by `tensor_links`, [stages].
std::vector<StageSeconds> seconds_of_stages(const ModelCosts& costs, const Candidate& candidate, const Split& split,
                                            const std::vector<Link>& tensor_links);

/// Returns the seconds of a computation; `is_first` says whether it gives the first gradient of the stage's weights.
double seconds_of(Operation operation, const StageSeconds& stage, bool is_first);

/// Returns the seconds of all actions of `schedule`, for simulate().
ActionSeconds seconds_of_actions(const Schedule& schedule, const std::vector<StageSeconds>& stages);

/// Returns the seconds in which a rank of `schedule` exchanges tensors with its group, in the mean of the ranks.
double mean_exchange_seconds(const Schedule& schedule, const std::vector<StageSeconds>& stages);

/// Returns the least seconds that the work of the candidate takes: that of all its micro-batches, divided equally among
/// the ranks of a pipeline, with the updates; and that of one micro-batch, which passes all layers one after the other.
/// Messages, reductions and exchanges come on top, so no step is faster.
double least_seconds(const ModelCosts& costs, const Candidate& candidate);

}  // namespace stagecoach
