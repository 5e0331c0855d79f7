#pragma once
/// @file
/// Where the time went, from a trace.

#include <string>

#include "core/trace.h"

namespace stagecoach {

/// One row a name and category, the largest first, with the time a step and the share. `steps`, at least 1, is how many
/// training steps the trace covers. Spans that lie in others count twice; those of a training step do not nest.
std::string profile_table(const Trace& trace, std::int64_t steps);

}  // namespace stagecoach
