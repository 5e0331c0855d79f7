#pragma once
/// @file
/// A table, made from a trace, of how the time was spent.

#include <string>

#include "core/trace.h"

namespace stagecoach {

/// Returns a table with one row per name and category, sorted by time in descending order, with the time per step and
/// the share. `steps`, at least 1, is the number of training steps in the trace. The time of nested spans counts twice;
/// the spans of a training step are not nested.
std::string profile_table(const Trace& trace, std::int64_t steps);

}  // namespace stagecoach
