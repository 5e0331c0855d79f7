#pragma once
/// @file
/// The processes that a check starts, and what those start in turn. Linux (descendants_linux.cpp) tells who they are
/// and what they use; on other systems (descendants_posix.cpp) only their process group is known.

#include <sys/types.h>

#include <optional>
#include <vector>

namespace stagecoach::labs {

/// On Linux, what loses its parent becomes a child of this process from now on.
void adopt_descendants();
/// Returns the children of this process, which must have one thread; none on other systems than Linux.
std::vector<pid_t> children();
/// Returns the processor time in seconds that a child has used; nothing on other systems than Linux, or if it has
/// ended.
std::optional<double> processor_seconds(pid_t child);
/// Called by a child: on Linux, it is killed when its parent ends.
void end_with_parent();
/// Closes all descriptors from `first` on.
void close_descriptors_from(int first);

}  // namespace stagecoach::labs
