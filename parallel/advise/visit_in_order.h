#pragma once
/// @file
/// The order in which advise() looks at candidates: best first, so that most need no simulation.

#include <functional>
#include <vector>

#include "parallel/advise/candidate.h"
#include "parallel/advise/evaluate.h"

namespace stagecoach {

/// Visits candidates in the order of a bound, the least seconds of a step with their split. Those that are not possible
/// come with the bound 0. It asks twice whether a candidate `is_worth` a visit: with least_seconds(), and with the
/// other bound, which takes longer to find.
void visit_in_order_of_bounds(Evaluator& evaluator, const std::vector<Candidate>& candidates,
                              const std::function<bool(const Candidate&, double bound)>& is_worth,
                              const std::function<void(const Candidate&, double bound)>& visit);

}  // namespace stagecoach
