#pragma once
/// @file
/// Starts threads and reports failure: a system limits the number of threads, and each needs memory for its stack.

#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace stagecoach {

/// Returns a thread that runs `body`. If the system cannot start another thread, throws Error that names `what`, such
/// as "thread 3 of 4", and the limits that may be the cause.
template <class Body>
std::jthread start_thread(const std::string& what, Body&& body) {
  constexpr const char* kWhy =
      "the limit on processes or memory is reached; raise it (ulimit -u, ulimit -v), or use fewer ranks or threads";
  try {
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error&) {
    throw Error(fmt::format("cannot start {}: {}", what, kWhy));
  } catch (const std::bad_alloc&) {
    throw Error(fmt::format("cannot start {}: {}", what, kWhy));
  }
}

}  // namespace stagecoach
