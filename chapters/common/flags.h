#pragma once
/// @file
/// The flags of the chapter programs: one list for all of them, of which each chapter offers some.

#include <set>
#include <string>
#include <vector>

#include "chapters/common/settings.h"

namespace stagecoach {

struct Chapter {
  std::string program;          ///< "ch01_single_device"
  std::string title;            ///< one line
  std::string example;          ///< one command
  std::set<std::string> flags;  ///< those of flags_of_some_chapters() that it honours
  Settings defaults = {};       ///< what flags have when they are not given
  /// What --schedule takes besides the name of a file; the first is the default.
  std::vector<std::string> schedules = {};
  std::vector<std::string> modes = {};  ///< what --mode takes
};

/// Thrown after --help was printed.
struct HelpShown {};

/// Reads the command line. With --resume the settings of the older run are the defaults, and a flag that would
/// train differently is refused. Throws UsageError for anything that cannot be honoured, and says what can.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
