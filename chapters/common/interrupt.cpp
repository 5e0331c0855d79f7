#include "chapters/common/interrupt.h"

#include <csignal>
#include <ctime>
#include <initializer_list>

namespace stagecoach {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t requested_at = 0;  // seconds

/// One request often comes twice at once, to the process and to its group, so only a later one ends the program.
extern "C" void note_request(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (requested == 0) {
    requested = 1;
    requested_at = static_cast<std::sig_atomic_t>(now.tv_sec);
  } else if (now.tv_sec > requested_at + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void catch_interrupts() {
  requested = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(signal, note_request);
  }
}

bool interrupted() { return requested != 0; }

}  // namespace stagecoach
