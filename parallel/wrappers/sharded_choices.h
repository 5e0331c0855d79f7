#pragma once
/// @file
/// Checks that the settings of sharded data parallelism fit, and that all ranks have the same.

#include "nn/sequential.h"
#include "parallel/comm/communicator.h"
#include "parallel/data_parallel/sharded/sharded_settings.h"

namespace stagecoach {

/// Returns `settings` with `unit_layers`: unless given, each layer with parameters begins a unit, and copies of tied
/// ones count as none. No more units are prefetched than there are. Throws UsageError for units or tied parameters that
/// do not fit `model`.
ShardedSettings with_units(const Sequential& model, ShardedSettings settings);

/// Returns the same for all ranks of `comm`, which call it together. Throws UsageError for settings that do not fit,
/// and Error that names a rank and the first difference, unless all have the same parameters and settings.
ShardedSettings checked_settings(const Sequential& model, Communicator& comm, ShardedSettings settings);

}  // namespace stagecoach
