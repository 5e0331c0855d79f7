#pragma once
/// @file
/// Generators: each a pure function from sizes to a schedule. schedule_kinds.h has a row for each.
///
/// p ranks, m micro-batches, v chunks (stages per rank); p, m, v >= 1. Sizes that a schedule cannot take throw
/// UsageError, which names the nearest ones that it can. A forward takes tF, a backward tB = tI + tW: the gradient of
/// the input and those of the weights.

#include "parallel/schedule/schedule.h"

namespace stagecoach {

// One stage per rank: straight.cpp.

/// One micro-batch at a time, forward through all stages and back again: one rank works, the others wait.
Schedule naive_schedule(int p, int m);

/// All forwards, then all backwards in the same order (so that gradients add up as on one device).
/// Source: Huang et al., "GPipe", 2019, section 2.2.
Schedule gpipe_schedule(int p, int m);

/// min(p - r - 1, m) forwards to warm up, then a forward and a backward in turn. Takes the time of GPipe with the
/// activations of p - r micro-batches. Source: Narayanan et al., "PipeDream", 2019, section 3.2 (with a flush).
Schedule one_f_one_b_schedule(int p, int m);

// Several stages per rank, round-robin: interleaved.cpp.

/// 1F1B over v chunks per rank, in groups of `group` micro-batches (0: p): less idle time for more messages.
/// Source: Narayanan et al., "Efficient large-scale language model training", 2021, section 2.2. With v = 1 it is 1F1B.
/// Legal groups: p <= group <= m, and m mod group is 0 or at least p.
Schedule interleaved_schedule(int p, int m, int v, int group = 0);

/// Interleaved 1F1B with half its extra warm-up, and the weight gradients apart, as in ZB-H1: with v = 1 it is ZB-H1.
/// Legal groups are those of the interleaved order, and one of all micro-batches (0: p, or all if they are fewer).
/// Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1, over chunks as PyTorch's
/// ScheduleInterleavedZeroBubble has it. Its tables are equal where it takes the same group: m / max(1, m / p), each
/// quotient rounded down. It needs m to be a multiple of that; here the last group may be smaller.
Schedule interleaved_zero_bubble_schedule(int p, int m, int v, int group = 0);

/// All micro-batches through the first chunk, then through the next; backwards likewise from the last chunk on.
/// A chunk's gradients are whole as soon as its turn is over, at the price of m v activations.
/// Source: Lamy-Poirier, "Breadth-first pipeline parallelism", 2022.
Schedule looped_breadth_first_schedule(int p, int m, int v);

// One stage per rank, weight gradients apart: zero_bubble.cpp.

/// 1F1B with the weight gradients moved to where a rank would else be idle; p activations on every rank.
/// Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.1 (ZB-H1).
Schedule zero_bubble_h1_schedule(int p, int m);

/// The same with a warm-up twice as long, which fills the time before the first backward too: with tF = tI = tW and
/// m >= 2 p - 1 no rank waits between its first and its last action, at the price of 2 p - 1 activations. Rank r begins
/// and ends r tF after rank 0, so a step alone is as long as that of ZB-H1, and steps that follow each other are not.
/// Source: Qi et al., 2023, section 2.2 (ZB-H2). sail-sg's handcrafted order (`Graph.manual_order`, with memory for
/// 2 p - 1 activations) is equal for m <= 2 p - 1; with more micro-batches it takes some input gradients earlier, and
/// needs the same time and memory.
Schedule zero_bubble_h2_schedule(int p, int m);

// Two stages per rank, in a V: v_shaped.cpp.

/// ZB-V: no rank waits between its first and its last action, as in ZB-H2, with the memory of 1F1B's first rank: 2 p
/// activations of half a rank's layers. That needs tF = tI = tW and m >= 2 p - 1; fewer micro-batches take that order
/// without those that are missing. Source: Qi et al., 2023, section 6; Qi et al., "Pipeline parallelism with
/// controllable memory", 2024, section 3. The tables are those of PyTorch's ScheduleZBVZeroBubble.
Schedule zero_bubble_v_schedule(int p, int m);

/// DualPipe cut in half: both directions of DeepSeek's pipeline are the two arms of a V. In its steady state a rank
/// runs a forward of one arm with a backward of the other, so that one computes while the other communicates; here one
/// after the other. 2 p + 1 activations of half a rank's layers. Whole for m >= 2 p; fewer micro-batches take that
/// order without those that are missing, where PyTorch refuses. Source: DeepSeek-AI, "DeepSeek-V3 technical report",
/// 2024, section 3.2.1, and its DualPipe repository. The tables are those of PyTorch's ScheduleDualPipeV, with each
/// overlapped pair written as its forward, then its backward.
Schedule dualpipe_v_schedule(int p, int m);

}  // namespace stagecoach
