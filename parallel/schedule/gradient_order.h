#pragma once
/// @file
/// The order in which a stage's gradients are added up: the order of the micro-batches, as on one device, whatever the
/// order of the backwards. A floating-point sum depends on the order of its terms, so a gradient that arrives before
/// its turn waits. In tables that run backwards from the last micro-batch to the first, such as PyTorch's looped
/// breadth-first ones, all gradients but one wait.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns, in ascending order, the micro-batches whose weight gradients are computed for `stage` in `actions`, the
/// list of one rank. If updates are listed, the micro-batches of an update come before those of the next, as a legal
/// schedule requires anyway.
std::vector<int> gradient_order(const std::vector<Action>& actions, int stage);

/// Returns for each rank the largest number of gradient sets that wait for their turn at once; a set holds the
/// gradients of all parameters of a stage. Returns zeros if every stage runs its backwards in order. `schedule` must be
/// legal.
std::vector<int> peak_waiting_gradients(const Schedule& schedule);
/// Returns the same in bytes, where a set of stage s takes `bytes[s]`.
std::vector<double> peak_waiting_bytes(const Schedule& schedule, const std::vector<double>& bytes);

/// Returns notes for the user on what the order of actions in `schedule` means for memory and for equality with one
/// device. Returns none if the stages run forwards and backwards in the order of the micro-batches. `schedule` must be
/// legal.
std::vector<std::string> notes_on_order(const Schedule& schedule);

}  // namespace stagecoach
