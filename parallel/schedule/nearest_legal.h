#pragma once
/// @file
/// Repairs a schedule that cannot run, for editors that suggest what would.

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// Returns a legal schedule with as much of the order of `computations` as possible, which must be one step without
/// communication and with every stage on one rank:
/// - an action that is listed twice keeps its first place, and missing ones follow at the end of their rank's list;
/// - where all ranks wait, one action is moved within its rank: of all such moves the one after which the most actions
///   can run, and of these the shortest. So if one move is enough, there is only one; otherwise a smaller number may
///   do.
/// A legal schedule is returned as it is.
Schedule nearest_legal(const Schedule& computations);

}  // namespace stagecoach
