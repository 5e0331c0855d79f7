#pragma once
/// @file
/// The command line of the chapter programs.

#include <memory>

#include "chapters/common/chapter.h"
#include "chapters/common/settings.h"

namespace stagecoach {

/// Thrown after printing --help.
struct HelpShown {};

/// Reads the command lines of a chapter. To describe the flags takes far longer than to read a command line, so whoever
/// reads many makes one parser.
class FlagParser {
 public:
  explicit FlagParser(const Chapter& chapter);
  ~FlagParser();

  /// Returns the settings on the command line. With --resume, the defaults are the settings of the older run, and a
  /// flag that would change the training is refused. Throws UsageError, which says what is possible, for an invalid
  /// command line.
  Settings parse(int argc, const char* const* argv);

 private:
  class CommandLine;
  const Chapter chapter_;
  const std::unique_ptr<CommandLine> line_;
};

/// Returns the settings on a single command line, as FlagParser::parse does.
Settings parse_flags(int argc, const char* const* argv, const Chapter& chapter);

}  // namespace stagecoach
