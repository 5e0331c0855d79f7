#include "chapters/common/interrupt.h"

#include <csignal>

namespace stagecoach {
namespace {

volatile std::sig_atomic_t requested = 0;

extern "C" void note_request(int signal) {
  requested = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  requested = 0;
  std::signal(SIGINT, note_request);
  std::signal(SIGTERM, note_request);
}

bool interrupted() { return requested != 0; }

}  // namespace stagecoach
