#pragma once
/// @file
/// What flags mean together: values that follow from others, and values that contradict each other.

#include "chapters/common/chapter.h"
#include "chapters/common/flag_table.h"

namespace stagecoach {

/// Gives settings that were left open the value that fits the others.
void fill_in_defaults(Settings& settings, const WasGiven& was_given);

/// Of a process that a launcher started: as many ranks as processes, which talk by what the launcher is for; of one
/// that was started by itself: ranks that are threads, unless --transport was given. Throws UsageError where the flags
/// say otherwise, and for a chapter without ranks in many processes.
void follow_launcher(WorldSettings& world, const Chapter& chapter, const WasGiven& was_given);

/// Between processes on GPUs: NCCL where it is built in, unless --transport was given. Throws UsageError for NCCL
/// without GPUs, and for several processes of torchrun that cannot use it; a single one is a rank by itself. The device
/// must be decided by now.
void choose_transport(WorldSettings& world, const WasGiven& was_given);

/// Throws UsageError for settings that contradict each other.
void require_consistent(const Chapter& chapter, const Settings& settings);

}  // namespace stagecoach
