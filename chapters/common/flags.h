#pragma once
/// @file
/// The command line of the chapter programs.

#include "chapters/common/chapter.h"
#include "chapters/common/settings.h"

namespace stagecoach {

/// Thrown after --help was printed.
struct HelpShown {};

/// Reads the command line. With --resume the settings of the older run are the defaults, and a flag that would
/// train differently is refused. Throws UsageError for anything that cannot be honoured, and says what can.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
