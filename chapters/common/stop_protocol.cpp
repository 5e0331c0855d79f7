#include "chapters/common/stop_protocol.h"

#include <algorithm>
#include <utility>

#include "chapters/common/interrupt.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

constexpr int kStopTag = kMaxTag;  // no other message has this tag

}  // namespace

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
      up_to = interrupted() ? kNoMore : static_cast<double>(std::max(last + 1, batch + batches_at_once()));
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
  const auto now = std::chrono::steady_clock::now();
  const double passed = std::chrono::duration<double>(now - std::exchange(admitted_at_, now)).count();
  return comm_.size() > 1 && passed < kSeconds ? kMaxBatches : 1;
}

}  // namespace stagecoach
