#pragma once
/// @file
/// Whether a schedule can run and trains what one device would.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// What is wrong with `schedule`; empty when it is legal:
/// - every stage is on one rank, or on replicas side by side, each of which runs its own micro-batches;
/// - each stage runs each micro-batch forward once, and backward once: either B, or I and W;
/// - where updates are listed, each replica makes each of them, between the backwards for it and those for the next;
/// - where communication is listed, each message that a computation needs is sent once and received once; messages from
///   one rank to another are received in the order in which they are sent; gradients of replicas are summed before they
///   are used;
/// - no rank waits forever (deadlock). Where ranks wait in a circle, the circle is named, and whether it is there only
/// because
///   sends wait for their receivers.
/// A schedule without communication is checked as `lower` completes it.
/// At most `kMostProblems` are listed.
std::vector<std::string> check(const Schedule& schedule);
inline constexpr std::size_t kMostProblems = 10;

/// Throws UsageError with the problems of `schedule`, if it has any; `name` is what it is called.
void require_legal(const Schedule& schedule, const std::string& name);

}  // namespace stagecoach
