#pragma once
/// @file
/// Schedules as text: one line per rank, with actions between commas, "0F0,0F1,0B0". This is the notation of
/// torch.distributed.pipelining, so tables interchange: `schedule_from_text` reads what its `_dump_csv` writes. Its
/// `_load_csv` reads what `to_text` writes of a schedule that is not lowered (format "compute_only"), and what
/// `to_pytorch_text` writes of one that is ("compute_comms"). The empty cells that mean idle time in its tables are
/// optional here.

#include <string>
#include <string_view>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns one line per rank, without empty cells.
std::string to_text(const Schedule& schedule);

/// Returns a lowered schedule of one step as PyTorch's `_load_csv(format="compute_comms")` expects it:
/// - Each send has its wait. That of an activation follows the backward that returns its gradient, by which time the
///   receiver has used it; the others are at the end of the step.
/// - Each stage has a reduction (see with_reductions), with its wait right after it: PyTorch also divides the gradients
///   by the number of micro-batches there.
///
/// `schedule_from_text` reads it back as `with_reductions(schedule)`. Throws Error if `schedule` is not lowered, or
/// lists updates.
std::string to_pytorch_text(const Schedule& schedule);

/// Reads such a table. `where` names it in errors. Throws UsageError with line and column for a cell that is not an
/// action, and for a stage on two ranks; everything else is for `check` to find.
///
/// An overlapped pair, "(0F7;7B3)OVERLAP_F_B", is read as two actions, one after the other. A table with messages
/// (SEND_F, RECV_F, SEND_B, RECV_B) is lowered; reductions (REDUCE_GRAD) count only in such a table. UNSHARD, RESHARD,
/// WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD have no effect here. If `left_out` is given, it is set to the number
/// of actions that were left out.
Schedule schedule_from_text(std::string_view text, const std::string& where, int* left_out = nullptr);

}  // namespace stagecoach
