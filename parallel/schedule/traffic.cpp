#include "parallel/schedule/traffic.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {
namespace {

/// Returns the lower of the two stages between which the message is sent.
std::size_t border_of(const Action& message) {
  const bool from_below =
      message.operation == Operation::send_forward || message.operation == Operation::receive_backward;
  return static_cast<std::size_t>(from_below ? message.stage : message.stage - 1);
}

void require_sizes(const Schedule& schedule, const std::vector<double>& message_bytes) {
  STAGECOACH_CHECK(schedule.is_lowered && message_bytes.size() + 1 == static_cast<std::size_t>(schedule.stage_count()),
                   "traffic: expected a lowered schedule and one message size per pair of neighbouring stages, got {} "
                   "sizes for {} stages",
                   message_bytes.size(), schedule.stage_count());
}

}  // namespace

std::vector<LinkTraffic> link_traffic(const Schedule& schedule, const std::vector<double>& message_bytes) {
  require_sizes(schedule, message_bytes);
  std::map<std::pair<int, int>, LinkTraffic> links;
  for_each_action(schedule, [&](std::size_t r, std::size_t, const Action& action) {
    if (is_send(action.operation)) {
      const int from = static_cast<int>(r);
      const int to = schedule.rank_of(receive_of(action));
      LinkTraffic& link = links.try_emplace({from, to}, LinkTraffic{from, to}).first->second;
      ++link.messages;
      link.bytes += message_bytes[border_of(action)];
    }
  });
  std::vector<LinkTraffic> all;
  for (const auto& [ranks, link] : links) {
    all.push_back(link);
  }
  return all;
}

std::vector<ReductionTraffic> reduction_traffic(const Schedule& schedule, const std::vector<double>& gradient_bytes) {
  std::vector<ReductionTraffic> ranks(schedule.ranks.size());
  for_each_action(schedule, [&](std::size_t r, std::size_t, const Action& action) {
    if (action.operation == Operation::reduce_grad) {
      ++ranks[r].reductions;
      ranks[r].bytes += gradient_bytes[static_cast<std::size_t>(action.stage)];
    }
  });
  return ranks;
}

std::set<int> first_reduced(const Schedule& schedule) {
  std::set<int> stages;
  for (const std::vector<Action>& actions : schedule.ranks) {
    const auto first = std::find_if(actions.begin(), actions.end(),
                                    [](const Action& action) { return action.operation == Operation::reduce_grad; });
    if (first != actions.end()) {
      stages.insert(first->stage);
    }
  }
  return stages;
}

std::vector<double> peak_receive_bytes(const Schedule& schedule, const std::vector<double>& message_bytes) {
  require_sizes(schedule, message_bytes);
  std::vector<double> peaks;
  for (const auto& actions : schedule.ranks) {
    double posted = 0;
    double peak = 0;
    for (const Action& action : actions) {
      if (is_receive(action.operation)) {
        posted += message_bytes[border_of(action)];
        peak = std::max(peak, posted);
      } else if (const auto used = receive_before(schedule, action)) {
        posted -= message_bytes[border_of(*used)];
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int> peak_receives(const Schedule& schedule) {
  const auto borders = static_cast<std::size_t>(std::max(schedule.stage_count() - 1, 0));
  const auto peaks = peak_receive_bytes(schedule, std::vector<double>(borders, 1));
  return {peaks.begin(), peaks.end()};
}

}  // namespace stagecoach
