#pragma once
/// @file
/// Counts what a lowered schedule sends: messages and bytes per rank and per link, and the memory of posted receives.

#include <cstdint>
#include <set>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The traffic from one rank to another.
struct LinkTraffic {
  int from = 0;
  int to = 0;
  std::int64_t messages = 0;
  double bytes = 0;
};

/// Returns all links that carry messages in one run of `schedule`, ordered by sender and receiver. `message_bytes[s]`
/// is the size of a message between the stages s and s + 1: [stages - 1]. Throws Error unless it has this length and
/// the schedule is lowered.
std::vector<LinkTraffic> link_traffic(const Schedule& schedule, const std::vector<double>& message_bytes);

/// The gradients that a rank sums with its replicas in one run of a schedule.
struct ReductionTraffic {
  std::int64_t reductions = 0;
  double bytes = 0;
};

/// Returns the reductions of each rank: [ranks]. `gradient_bytes[s]` is the size of the gradients of stage s.
std::vector<ReductionTraffic> reduction_traffic(const Schedule& schedule, const std::vector<double>& gradient_bytes);

/// Returns the stages whose gradients a rank sums first.
std::set<int> first_reduced(const Schedule& schedule);

/// Returns for each rank the peak memory, in bytes, of receives that are posted and not yet used: [ranks].
std::vector<double> peak_receive_bytes(const Schedule& schedule, const std::vector<double>& message_bytes);

/// Returns for each rank the largest number of receives that are posted and not yet used: [ranks].
std::vector<int> peak_receives(const Schedule& schedule);

}  // namespace stagecoach
