#pragma once
/// @file
/// The table of schedules. To add a schedule, write a source file with its generator and its row, and add two lines
/// here.
///
/// In the source files, p is the number of ranks, m the number of micro-batches, and v the number of chunks (virtual
/// stages per rank); all are at least 1. A forward takes tF, a backward tB = tI + tW: tI for the gradient of the input,
/// tW for the gradients of the weights.

#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {

// One stage per rank: straight.cpp.
ScheduleKind naive_kind();
ScheduleKind gpipe_kind();
ScheduleKind one_f_one_b_kind();
// Several stages per rank, round-robin: interleaved.cpp.
ScheduleKind interleaved_kind();
ScheduleKind interleaved_sync_kind();
ScheduleKind looped_breadth_first_kind();
ScheduleKind interleaved_zero_bubble_kind();
// One stage per rank, backwards split into I and W: zero_bubble.cpp.
ScheduleKind zero_bubble_h1_kind();
ScheduleKind zero_bubble_h2_kind();
// Two stages per rank, in a V: v_shaped.cpp.
ScheduleKind zero_bubble_v_kind();
ScheduleKind dualpipe_v_kind();

/// The rows, in the order in which flags and help list them.
// clang-format off
inline constexpr ScheduleKind (*kScheduleTable[])() = {
    naive_kind,
    gpipe_kind,
    one_f_one_b_kind,
    interleaved_kind,
    interleaved_sync_kind,
    looped_breadth_first_kind,
    zero_bubble_h1_kind,
    zero_bubble_h2_kind,
    interleaved_zero_bubble_kind,
    zero_bubble_v_kind,
    dualpipe_v_kind,
};
// clang-format on

}  // namespace stagecoach
