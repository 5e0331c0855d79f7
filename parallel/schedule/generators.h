#pragma once
/// @file
/// Generators: each a pure function from sizes to a schedule. `make_schedule` finds them by name.
///
/// p ranks, m micro-batches, v chunks (stages a rank); p, m, v >= 1. Sizes that a schedule cannot take throw
/// UsageError, which names the nearest micro-batch counts that it can.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// One micro-batch at a time, forward through all stages and back again: one rank works, the others wait.
Schedule naive_schedule(int p, int m);

/// All forwards, then all backwards in the same order (so that gradients add up as on one device).
/// Source: Huang et al., "GPipe", 2019, section 2.2.
Schedule gpipe_schedule(int p, int m);

/// min(p - r - 1, m) forwards to warm up, then a forward and a backward in turn. Takes the time of GPipe with the
/// activations of p - r micro-batches. Source: Narayanan et al., "PipeDream", 2019, section 3.2 (with a flush).
Schedule one_f_one_b_schedule(int p, int m);

/// 1F1B over v chunks a rank, in groups of `group` micro-batches (0: p): less idle time for more messages.
/// Source: Narayanan et al., "Efficient large-scale language model training", 2021, section 2.2. With v = 1 it is 1F1B.
/// Legal groups: p <= group <= m, and m mod group is 0 or at least p.
Schedule interleaved_schedule(int p, int m, int v, int group = 0);

/// All micro-batches through the first chunk, then through the next; backwards likewise from the last chunk on.
/// A chunk's gradients are whole as soon as its turn is over, at the price of m v activations.
Schedule looped_breadth_first_schedule(int p, int m, int v);

/// 1F1B with the weight gradients apart, moved to where a rank would else be idle; p activations on every rank.
/// Source: Qi et al., "Zero bubble pipeline parallelism", 2023, section 2.2 (ZB-H1). Needs m >= p.
Schedule zero_bubble_h1_schedule(int p, int m);

/// The names that make_schedule knows: naive, gpipe, 1f1b, interleaved, foldx_aiao (looped breadth-first), foldx_fifo
/// (the interleaved order; what differs is that messages do not wait), zb-h1.
const std::vector<std::string>& schedule_names();
/// Whether a rank waits after each send until the receiver has taken the message: interleaved does, foldx_fifo does
/// not.
bool sends_wait(const std::string& name);
/// Throws UsageError for a name that it does not know, and for chunks or groups in a schedule that has none.
Schedule make_schedule(const std::string& name, int p, int m, int v = 1, int group = 0);

}  // namespace stagecoach
