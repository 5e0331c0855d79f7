#include "core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <array>

namespace stagecoach {
namespace {

using CoreSet = std::array<cpu_set_t, 16>;  // a cpu_set_t holds 1,024 cores, and some machines have more
constexpr int kMaxCores = CPU_SETSIZE * 16;

}  // namespace

std::vector<int> usable_cores() {
  CoreSet set{};
  std::vector<int> cores;
  if (::sched_getaffinity(::getpid(), sizeof(set), set.data()) == 0) {  // the process id is that of its main thread
    for (int core = 0; core < kMaxCores; ++core) {
      if (CPU_ISSET_S(core, sizeof(set), set.data())) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

void run_on_cores(const std::vector<int>& cores) {
  CoreSet set{};
  for (const int core : cores) {
    CPU_SET_S(core, sizeof(set), set.data());
  }
  static_cast<void>(::sched_setaffinity(0, sizeof(set), set.data()));
}

}  // namespace stagecoach
