#pragma once
/// @file
/// Runs a function in a process of its own, within limits.

#include <functional>
#include <string>

#include "tests/labs/grading.h"

namespace stagecoach::labs {

/// How a child process ended.
struct Ended {
  std::string reported;  ///< what the function returned; empty if it did not return
  std::string how;       ///< if it did not return: "it crashed: Segmentation fault"
  std::string printed;   ///< the start of what it wrote to standard output and standard error
};

/// Runs `body` in a copy of this process, which must have one thread, and ends it and all that it started in its
/// process group. Throws Error if the system refuses a process or a pipe.
Ended run_in_child(const Limits& limits, const std::function<std::string()>& body);

/// Returns 32 characters that nobody can guess.
std::string random_word();

}  // namespace stagecoach::labs
