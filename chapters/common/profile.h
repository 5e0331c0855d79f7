#pragma once
/// @file
/// Where the time went, from a trace.

#include <string>

#include "core/trace.h"

namespace stagecoach {

/// A table of the spans that contain no other: one row a name and category, the largest first, with the time a step
/// and the share. `steps` is how many training steps the trace covers.
std::string profile_table(const Trace& trace, std::int64_t steps);

}  // namespace stagecoach
