#pragma once
/// @file
/// The frame of every chapter program: flags in, exit code out.

#include "chapters/common/flags.h"

namespace stagecoach {

/// Thrown by a program that was asked to stop and has saved. Exit code 130.
struct Interrupted {};

/// Reads the flags, runs `body`, and turns what it throws into one line on standard error and an exit code:
/// 0 done, 2 usage, 3 data, 4 any other failure, 130 interrupted.
int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&));

}  // namespace stagecoach
