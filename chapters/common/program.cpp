#include "chapters/common/program.h"

#include <cstdio>

#include "chapters/common/name_flags.h"
#include "core/base/throw_if.h"
#include "parallel/launch/launch_environment.h"
#include "parallel/training/exit_code.h"

namespace stagecoach {
namespace {

/// Thrown on the other ranks for wrong flags: all processes have the same flags, and rank 0 reports the error.
struct PrintedByRankZero {};

Settings flags_of_this_process(int argc, const char* const* argv, const Chapter& chapter) {
  if (is_rank_zero()) {
    return parse_flags(argc, argv, chapter);
  }
  throw_if<Error>(std::freopen("/dev/null", "w", stdout) == nullptr,
                  "cannot open /dev/null for the output of ranks other than 0; check the device");
  try {
    return parse_flags(argc, argv, chapter);
  } catch (const UsageError&) {
    throw PrintedByRankZero{};
  }
}

}  // namespace

int run_program(const std::string& program, const std::function<int()>& body) {
  const auto run = [&] {
    try {
      return body();
    } catch (const HelpShown&) {
      return 0;
    }
  };
  return with_exit_code(program, run, name_flags);
}

int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&)) {
  return run_program(chapter.program, [&] {
    try {
      body(flags_of_this_process(argc, argv, chapter));
      return 0;
    } catch (const PrintedByRankZero&) {
      return 2;
    }
  });
}

}  // namespace stagecoach
