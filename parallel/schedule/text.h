#pragma once
/// @file
/// Schedules as text: a line a rank, actions between commas, "0F0,0F1,0B0". It is the table of
/// torch.distributed.pipelining (`_dump_csv`, format "compute_only"), so tables interchange; the empty cells that stand
/// for idle time there may be there or not.

#include <string>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// A line a rank, without empty cells.
std::string to_text(const Schedule& schedule);

/// Reads such a table. `where` names it in errors. Throws UsageError with line and column for what is no action, and
/// for a stage that two ranks hold; everything else is for `check` to say.
Schedule schedule_from_text(std::string_view text, const std::string& where);

}  // namespace stagecoach
