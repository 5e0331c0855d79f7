#pragma once
/// @file
/// The table of schedules. A new schedule is a source file with its generator and its row, and two lines here.
///
/// In the sources p is the number of ranks, m of micro-batches, v of chunks (virtual stages per rank); all are at least
/// 1. A forward takes tF, a backward tB = tI + tW: the gradient of the input and those of the weights.

#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach {

// One stage per rank: straight.cpp.
ScheduleKind naive_kind();
ScheduleKind gpipe_kind();
ScheduleKind one_f_one_b_kind();
// Several stages per rank, round-robin: interleaved.cpp.
ScheduleKind interleaved_kind();
ScheduleKind looped_breadth_first_kind();
ScheduleKind foldx_fifo_kind();
ScheduleKind interleaved_zero_bubble_kind();
// One stage per rank, weight gradients apart: zero_bubble.cpp.
ScheduleKind zero_bubble_h1_kind();
ScheduleKind zero_bubble_h2_kind();
// Two stages per rank, in a V: v_shaped.cpp.
ScheduleKind zero_bubble_v_kind();
ScheduleKind dualpipe_v_kind();

/// In the order in which flags and help list them.
// clang-format off
inline constexpr ScheduleKind (*kScheduleTable[])() = {
    naive_kind,
    gpipe_kind,
    one_f_one_b_kind,
    interleaved_kind,
    looped_breadth_first_kind,
    foldx_fifo_kind,
    zero_bubble_h1_kind,
    zero_bubble_h2_kind,
    interleaved_zero_bubble_kind,
    zero_bubble_v_kind,
    dualpipe_v_kind,
};
// clang-format on

}  // namespace stagecoach
