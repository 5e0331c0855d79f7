#pragma once
/// @file
/// Whether tests may use up their memory.

#include <sys/resource.h>

namespace stagecoach::test {

/// Whether a limit on this process's address space holds. QEMU accepts one and forgets it, and a test that uses up what
/// it was left would use up the machine's memory.
inline bool holds_limit_on_address_space() {
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  if (before.rlim_cur != RLIM_INFINITY) {
    return true;
  }
  const rlimit lower{rlim_t{1} << 46, before.rlim_max};  // more than any test takes
  ::setrlimit(RLIMIT_AS, &lower);
  rlimit after{};
  ::getrlimit(RLIMIT_AS, &after);
  ::setrlimit(RLIMIT_AS, &before);
  return after.rlim_cur == lower.rlim_cur;
}

}  // namespace stagecoach::test
