#pragma once
/// @file
/// What flags mean together: values that follow from others, and values that contradict each other.

#include "chapters/common/flags.h"

namespace stagecoach {

/// Gives settings that were left open the value that fits the others.
void fill_in_defaults(Settings& settings);

/// Throws UsageError for settings that contradict each other. A number of micro-batches that was not given becomes as
/// many as the batch has pictures, if that is fewer.
void require_consistent(const Chapter& chapter, Settings& settings, bool microbatches_given);

}  // namespace stagecoach
