#pragma once
/// @file
/// Command lines: that of the chapter programs, and of the programs beside them.

#include "chapters/common/chapter.h"
#include "chapters/common/settings.h"

namespace CLI {
class App;
}

namespace stagecoach {

/// Thrown after printing --help.
struct HelpShown {};

/// Parses the command line of a program. Throws HelpShown, and UsageError for flags that are wrong.
void parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// Returns the settings on a command line of a chapter. With --resume, the defaults are the settings of the older run,
/// and a flag that would change the training is refused. Throws UsageError, which says what is possible, for an invalid
/// command line.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
