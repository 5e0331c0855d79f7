#pragma once
/// @file
/// How a program ends: an exception becomes one line on standard error and an exit code.

#include <functional>
#include <string>

namespace stagecoach {

/// Runs `body`, which returns the exit code, and checks that standard output was written. An exception is reported with
/// the program's name in front, after `translate` has put the program's words in place of the library's. It determines
/// the exit code: 2 for UsageError, 3 for DataError, 4 for any other std::exception, and 130 for Interrupted, of which
/// the run has printed what there is to say. A limit on file size (`ulimit -f`)
/// acts like a full disk: the writer throws DataError, and no signal is raised. Running out of memory anywhere prints
/// one line and returns 4.
int with_exit_code(const std::string& program, const std::function<int()>& body,
                   const std::function<std::string(std::string)>& translate = {});

}  // namespace stagecoach
