#pragma once
/// @file
/// How a program ends: what it threw becomes one line on standard error and an exit code.

#include <functional>
#include <string>

namespace stagecoach {

/// Runs `body`, whose value is the exit code, and sees that standard output was written. What it throws is reported
/// with the program's name in front: UsageError gives 2, DataError 3, any other std::exception 4. A limit on the size
/// of files (`ulimit -f`) acts as a full disk: a DataError of who writes, and no signal. Memory that runs out anywhere
/// gives one line and 4.
int with_exit_code(const std::string& program, const std::function<int()>& body);

}  // namespace stagecoach
