#pragma once
/// @file
/// The order in which a stage's gradients are added up: that of the micro-batches, as on one device, whatever the order
/// of the backwards. A sum in floating point depends on the order of its terms; so a gradient that comes before its
/// turn waits. Tables that run backwards from the last micro-batch to the first, such as PyTorch's looped breadth-first
/// ones, make all but one wait.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The micro-batches whose weight gradients are computed for `stage` in `actions`, those of one rank: ascending. Where
/// updates are listed, the ones for an update come before those for the next; a legal schedule needs that anyway.
std::vector<int> gradient_order(const std::vector<Action>& actions, int stage);

/// The most gradients that wait for their turn at once on each rank, as sets: one of all parameters of a stage counts
/// as one. Zeros where every stage runs its backwards in order. `schedule` must be legal.
std::vector<int> peak_waiting_gradients(const Schedule& schedule);
/// The same in bytes, when a set of stage s takes `bytes[s]`.
std::vector<double> peak_waiting_bytes(const Schedule& schedule, const std::vector<double>& bytes);

/// What the orders in `schedule`, which must be legal, mean for memory and for what is promised: sentences for people,
/// none for a schedule whose stages run forwards and backwards in the order of the micro-batches.
std::vector<std::string> notes_on_order(const Schedule& schedule);

}  // namespace stagecoach
