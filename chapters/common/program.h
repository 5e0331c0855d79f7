#pragma once
/// @file
/// The common main function of the chapter programs.

#include "chapters/common/flags.h"

namespace stagecoach {

/// Reads the flags, runs `body`, and reports an exception as one line on standard error. Returns the exit code:
/// 0 done, 2 usage, 3 data, 4 any other failure, 130 interrupted.
int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&));

}  // namespace stagecoach
