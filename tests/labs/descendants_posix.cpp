#include <unistd.h>

#include "tests/labs/descendants.h"

namespace stagecoach::labs {

void adopt_descendants() {}

std::vector<pid_t> children() { return {}; }

void end_with_parent() {}

void close_descriptors_from(int first) {
  const long most = ::sysconf(_SC_OPEN_MAX);
  for (int descriptor = first; descriptor < most; ++descriptor) {
    ::close(descriptor);
  }
}

}  // namespace stagecoach::labs
