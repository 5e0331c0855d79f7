#pragma once
/// @file
/// Whether operations are recorded for a backward pass.

#include "core/base/thread_scope.h"

namespace stagecoach {

/// Disables recording in this thread until the end of the scope, for evaluation and optimizer steps.
class NoGrad : public ThreadScope<NoGrad> {};

/// Returns whether operations of this thread are recorded (the default).
inline bool grad_enabled() { return !NoGrad::is_active(); }

}  // namespace stagecoach
