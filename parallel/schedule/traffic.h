#pragma once
/// @file
/// What a lowered schedule sends: messages and bytes per rank and per link, and the memory that posted receives take.

#include <cstdint>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// One direction between two ranks.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  std::int64_t messages = 0;
  double bytes = 0;
};

/// All links that carry messages in one run of `schedule`, ordered by sender and receiver. `message_bytes[s]` is the
/// size of a message between the stages s and s + 1: [stages - 1]. Throws Error unless there is one for each border,
/// and for a schedule that is not lowered.
std::vector<LinkTraffic> link_traffic(const Schedule& schedule, const std::vector<double>& message_bytes);

/// What a rank sums with its replicas in one run of a schedule.
struct ReductionTraffic {
  std::int64_t reductions = 0;
  double bytes = 0;
};

/// Of each rank: [ranks]. `gradient_bytes[s]` is the size of the gradients of stage s.
std::vector<ReductionTraffic> reduction_traffic(const Schedule& schedule, const std::vector<double>& gradient_bytes);

/// The most bytes on each rank of receives that are posted and not yet used: [ranks].
std::vector<double> peak_receive_bytes(const Schedule& schedule, const std::vector<double>& message_bytes);

/// The most such receives on each rank.
std::vector<int> peak_receives(const Schedule& schedule);

}  // namespace stagecoach
