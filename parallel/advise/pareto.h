#pragma once
/// @file
/// Time against memory: which plans are worth their memory?

#include <vector>

#include "parallel/advise/advise.h"

namespace stagecoach {

/// Returns the plans that no other one beats in the time of a step and in the memory of its fullest rank: each takes
/// longer than the one before, and needs less memory. `known` are plans of the request that were found before, such as
/// the answers of advise(), whose layers have moved; they are among the plans.
///
/// The search is exact over candidates_of(request): it skips a candidate if one of the plans is no slower than the
/// candidate's least_seconds(), and needs no more than its least_bytes(), or than its memory. Then layers of the plans
/// move (Evaluator::move_layers): a moved plan is one more. Equal arguments give equal plans, with Prune::no too.
std::vector<Evaluated> pareto(const AdviceRequest& request, std::vector<Evaluated> known = {},
                              Prune prune = Prune::yes);

}  // namespace stagecoach
