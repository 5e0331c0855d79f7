#pragma once
/// @file
/// Controls whether batch norm layers update their running statistics in training.

#include "core/base/thread_scope.h"

namespace stagecoach {

/// Stops these updates in this thread until the end of the scope, for a forward that is run a second time.
class KeepRunningStatistics : public ThreadScope<KeepRunningStatistics> {};

}  // namespace stagecoach
