#include "chapters/common/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>

namespace stagecoach {
namespace {

// A handler runs on any thread, and ranks on other threads read these.
std::atomic<bool> requested = false;
std::atomic<std::int64_t> requested_at = 0;  // seconds
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

/// Notes a request to stop. One request often arrives twice at once, through the process and through its group, so only
/// a later one ends the program.
extern "C" void note_request(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (!requested) {
    requested_at = now.tv_sec;
    requested = true;
  } else if (now.tv_sec > requested_at + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void catch_interrupts() {
  requested = false;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, note_request);
  }
}

bool interrupted() { return requested; }

}  // namespace stagecoach
