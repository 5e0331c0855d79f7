#pragma once
/// @file
/// The answers of the advisor as text, JSON and CSV.

#include <string>

#include "parallel/advise/advise.h"

namespace stagecoach {

/// Returns the table of plans, one line each after a heading.
std::string plans_table(const AdviceRequest& request, const Advice& advice);

/// Returns why the first plan is the fastest, and what would make it faster: which part of the step a rank works, what
/// its memory is for, and the answers for one more GiB per rank, links twice as fast, and twice as many ranks.
std::string why_text(const AdviceRequest& request, const Advice& advice);

/// Returns why the other schedules are no answers, one line each; with `all`, one line per candidate.
std::string rejected_text(const Advice& advice, bool all);

/// Returns all plans as a JSON list of objects, or as CSV with a heading. Seconds and bytes are not rounded.
std::string plans_json(const AdviceRequest& request, const Advice& advice);
std::string plans_csv(const AdviceRequest& request, const Advice& advice);

}  // namespace stagecoach
