#pragma once
/// @file
/// Command lines: that of the chapter programs, and of the programs beside them.

#include <functional>
#include <string>

#include "chapters/common/chapter.h"
#include "chapters/common/flag_table.h"
#include "chapters/common/settings.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach {

/// Thrown after printing --help.
struct HelpShown {};

/// Describes an option to CLI11, which then calls `set` with its text. A UsageError of `set` is reported as that of the
/// option.
CLI::Option& add_option(CLI::App& app, const std::string& name, const std::string& help,
                        const std::function<void(const std::string& text)>& set);
/// Does so for a flag of the chapters, which writes to `settings`. A switch that is on by default has a second name
/// that turns it off.
CLI::Option& add_flag(CLI::App& app, const Flag& flag, Settings& settings);

/// Parses the command line of a program. Throws HelpShown, and UsageError for flags that are wrong.
void parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// Returns the settings on a command line of a chapter. With --resume, the defaults are the settings of the older run,
/// and a flag that would change the training is refused. Throws UsageError, which says what is possible, for an invalid
/// command line.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
