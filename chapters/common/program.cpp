#include "chapters/common/program.h"

#include <cstdio>

#include "chapters/common/exit_code.h"
#include "core/base/throw_if.h"
#include "parallel/launch/launch_environment.h"

namespace stagecoach {
namespace {

/// Thrown on the other ranks for wrong flags: all processes have the same flags, and rank 0 reports the error.
struct SaidByRank0 {};

Settings flags_of_this_process(int argc, const char* const* argv, const Chapter& chapter) {
  if (is_rank_zero()) {
    return parse_flags(argc, argv, chapter);
  }
  throw_if<Error>(std::freopen("/dev/null", "w", stdout) == nullptr,
                  "cannot open /dev/null for the output of ranks other than 0; check the device");
  try {
    return parse_flags(argc, argv, chapter);
  } catch (const UsageError&) {
    throw SaidByRank0{};
  }
}

}  // namespace

int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&)) {
  try {
    return with_exit_code(chapter.program, [&] {
      body(flags_of_this_process(argc, argv, chapter));
      return 0;
    });
  } catch (const HelpShown&) {
    return 0;
  } catch (const SaidByRank0&) {
    return 2;
  } catch (const Interrupted&) {
    return 130;
  }
}

}  // namespace stagecoach
