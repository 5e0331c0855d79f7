#pragma once
/// @file
/// What flags mean together: values that follow from others, and values that contradict each other.

#include <functional>
#include <string>

#include "chapters/common/flags.h"

namespace stagecoach {

/// Whether a flag, named without dashes, is on the command line.
using WasGiven = std::function<bool(const std::string& flag)>;

/// Gives settings that were left open the value that fits the others.
void fill_in_defaults(Settings& settings, const WasGiven& was_given);

/// Throws UsageError for settings that contradict each other.
void require_consistent(const Chapter& chapter, const Settings& settings);

}  // namespace stagecoach
