#pragma once
/// @file
/// The common main functions of the programs.

#include <functional>
#include <string>

#include "chapters/common/flags.h"

namespace stagecoach {

/// Runs `body`, which returns the exit code, and reports an exception as one line on standard error, with flags in
/// place of a library's parameters. Returns the exit code: 0 done, 2 usage, 3 data, 4 any other failure, 130
/// interrupted.
int run_program(const std::string& program, const std::function<int()>& body);
/// Does the same with a chapter's flags.
int run_program(int argc, const char* const* argv, const Chapter& chapter, void (*body)(const Settings&));

}  // namespace stagecoach
