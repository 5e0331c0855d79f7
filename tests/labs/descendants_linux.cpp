#include <fmt/format.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/labs/descendants.h"

namespace stagecoach::labs {

void adopt_descendants() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> children() {
  std::ifstream list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  std::vector<pid_t> all;
  for (pid_t child = 0; list >> child;) {
    all.push_back(child);
  }
  return all;
}

std::optional<double> processor_seconds(pid_t child) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(child, &clock) != 0 || ::clock_gettime(clock, &time) != 0) {
    return std::nullopt;
  }
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void end_with_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

void close_descriptors_from(int first) { ::close_range(static_cast<unsigned>(first), ~0U, 0); }

}  // namespace stagecoach::labs
