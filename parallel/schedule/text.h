#pragma once
/// @file
/// Schedules as text: one line per rank, actions between commas, "0F0,0F1,0B0". It is the notation of
/// torch.distributed.pipelining, so tables interchange: those that its `_dump_csv` writes are read, and ours are its
/// format "compute_only" before they are lowered and "compute_comms" after. The empty cells that mean idle time there
/// may be there or not.

#include <string>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// One line per rank, without empty cells.
std::string to_text(const Schedule& schedule);

/// Reads such a table. `where` names it in errors. Throws UsageError with line and column for what is not an action,
/// and for a stage on two ranks; everything else is for `check` to say.
///
/// An overlapped pair, "(0F7;7B3)OVERLAP_F_B", is read as its actions one after the other. A table with messages
/// (SEND_F, RECV_F, SEND_B, RECV_B) is lowered; reductions (REDUCE_GRAD) count only there. UNSHARD,
/// RESHARD, WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD do nothing here. `left_out`, if given, gets how many actions
/// were left out.
Schedule schedule_from_text(std::string_view text, const std::string& where, int* left_out = nullptr);

}  // namespace stagecoach
