#pragma once
/// @file
/// Checks whether a schedule can run and trains what one device would train.

#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns what is wrong with `schedule`, at most `kMaxProblems` problems. The list is empty if the schedule is legal:
/// - every stage is on one rank, or on several replicas, each of which runs its own micro-batches;
/// - each stage runs each micro-batch forward once and backward once: either B, or I and W;
/// - if updates are listed, each replica makes each of them after the backwards that belong to it and before those that
///   belong to the next;
/// - if communication is listed, each message that a computation needs is sent once and received once; messages from
///   one rank to another are received in the order in which they are sent; gradients of replicas are summed before they
///   are used;
/// - no rank waits forever (deadlock). If ranks wait in a circle, the problem names the circle and says whether it
///   exists only because sends wait for their receivers.
/// A schedule without communication is checked in the form that `lower` gives it.
std::vector<std::string> check(const Schedule& schedule);
inline constexpr std::size_t kMaxProblems = 10;

/// Throws UsageError that lists the problems of `schedule`, if it has any. The error calls the schedule `name`.
void require_legal(const Schedule& schedule, const std::string& name);

}  // namespace stagecoach
