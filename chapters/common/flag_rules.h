#pragma once
/// @file
/// Rules for combinations of flags: values that follow from others, and values that contradict each other.

#include "chapters/common/chapter.h"
#include "chapters/common/flag_table.h"

namespace stagecoach {

/// Sets settings that were not given to values that fit the others.
void fill_in_defaults(Settings& settings, const WasGiven& was_given);

/// Adapts the settings to the launcher, if there is one: as many ranks as processes, and MPI as the transport. Without
/// a launcher, ranks are threads. --transport overrides the choice of transport. Throws UsageError if the flags
/// contradict the launcher, and for several processes of a chapter without ranks.
void follow_launcher(WorldSettings& world, const Chapter& chapter, const WasGiven& was_given);

/// Chooses the transport for processes on GPUs: NCCL if it is built in, unless --transport was given. Throws UsageError
/// for NCCL without GPUs, and for several processes of torchrun that cannot use NCCL; a single process is one rank. The
/// device must already be set.
void choose_transport(WorldSettings& world, const WasGiven& was_given);

/// Throws UsageError for settings that contradict each other.
void require_consistent(const Chapter& chapter, const Settings& settings);

}  // namespace stagecoach
