#pragma once
/// @file
/// The command line of the chapter programs.

#include "chapters/common/chapter.h"
#include "chapters/common/settings.h"

namespace stagecoach {

/// Thrown after printing --help.
struct HelpShown {};

/// Returns the settings on a command line of a chapter. With --resume, the defaults are the settings of the older run,
/// and a flag that would change the training is refused. Throws UsageError, which says what is possible, for an invalid
/// command line.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
