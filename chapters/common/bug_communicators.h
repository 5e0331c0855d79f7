#pragma once
/// @file
/// Communicators with a bug of the museum (bugs.h), around the real one.

#include <memory>

#include "chapters/common/bugs.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Returns a communicator for the messages of `comm`, which must outlive it, with the bug send_order or tag_twice; null
/// for any other bug.
std::unique_ptr<Communicator> communicator_with(Bug bug, Communicator& comm);

}  // namespace stagecoach
