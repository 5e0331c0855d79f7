#pragma once
/// @file
/// Starting threads where that may fail: a system limits how many there are, and each needs memory for its stack.

#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"

namespace stagecoach {

/// A thread that runs `body`. Throws Error that names `what`, such as "thread 3 of 4", and the limit on processes or
/// memory where the system starts no more.
template <class Body>
std::jthread start_thread(const std::string& what, Body&& body) {
  constexpr const char* kWhy =
      "limit on processes or memory; raise it (ulimit -u, ulimit -v), or use fewer ranks and threads";
  try {
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error&) {
    throw Error(fmt::format("cannot start {}: {}", what, kWhy));
  } catch (const std::bad_alloc&) {
    throw Error(fmt::format("cannot start {}: {}", what, kWhy));
  }
}

}  // namespace stagecoach
