#include "parallel/training/stop_protocol.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <utility>

#include "parallel/comm/activity.h"

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

constexpr int kStopTag = kMaxTag;  // no other message has this tag

}  // namespace

void catch_interrupts() {
  requested = false;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    std::signal(signal, note_request);
  }
}

void StopProtocol::restart(std::int64_t first) { next_ = admitted_ = first; }

bool StopProtocol::asked() {
  const Activity activity("end of a step");
  ++next_;
  return !may_begin(next_, next_);
}

bool StopProtocol::may_begin(std::int64_t batch, std::int64_t last) {
  constexpr double kNoMore = -1;
  while (!refused_ && admitted_ <= (comm_.rank() == 0 ? last : batch)) {
    double up_to = kNoMore;
    if (comm_.rank() != 0) {
      up_to = comm_.receive_number(0, kStopTag);
    } else {
      up_to = requested ? kNoMore : static_cast<double>(std::max(last + 1, batch + batches_at_once()));
      for (int r = 1; r < comm_.size(); ++r) {
        comm_.send_number(up_to, r, kStopTag);
      }
    }
    refused_ = up_to == kNoMore;
    admitted_ = refused_ ? admitted_ : static_cast<std::int64_t>(up_to);
  }
  return batch < admitted_;
}

/// Returns for how many batches one message is valid. A message costs as much as a short action, so several short
/// batches share one, but a stop must not wait for many long batches.
std::int64_t StopProtocol::batches_at_once() {
  constexpr double kSeconds = 0.1;
  constexpr std::int64_t kMaxBatches = 8;
  const double now = comm_.clock().now();
  const double passed = now - std::exchange(admitted_at_, now);
  return comm_.size() > 1 && passed < kSeconds ? kMaxBatches : 1;
}

}  // namespace stagecoach
