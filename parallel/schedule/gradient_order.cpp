#include "parallel/schedule/gradient_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace stagecoach {
namespace {

/// The gradients of one stage during a step: their order, how many of them are added, and which ones wait.
struct Turns {
  std::vector<int> order = {};
  std::size_t added = 0;
  std::set<int> waiting = {};
};

/// Returns the first forward in `actions` that runs after a later micro-batch of the same stage; nothing if there is
/// none.
std::optional<Action> forward_out_of_order(const std::vector<Action>& actions) {
  std::map<int, int> newest;  // per stage
  for (const Action& action : actions) {
    if (action.operation != Operation::forward) {
      continue;
    }
    const auto [found, is_first] = newest.emplace(action.stage, action.microbatch);
    if (!is_first && action.microbatch < found->second) {
      return action;
    }
    found->second = action.microbatch;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int> gradient_order(const std::vector<Action>& actions, int stage) {
  std::vector<int> order;
  for (const Action& action : actions) {
    if (action.stage == stage && gives_weight_gradient(action.operation)) {
      order.push_back(action.microbatch);
    }
  }
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<double> peak_waiting_bytes(const Schedule& schedule, const std::vector<double>& bytes) {
  std::vector<double> peaks;
  for (const auto& actions : schedule.ranks) {
    std::map<int, Turns> stages;
    double waiting = 0;
    double peak = 0;
    for (const Action& action : actions) {
      if (!gives_weight_gradient(action.operation)) {
        continue;
      }
      const double size = bytes[static_cast<std::size_t>(action.stage)];
      const auto [found, is_first] = stages.try_emplace(action.stage);
      Turns& turns = found->second;
      if (is_first) {
        turns.order = gradient_order(actions, action.stage);
      }
      turns.waiting.insert(action.microbatch);
      waiting += size;
      if (action.microbatch != turns.order[turns.added]) {
        peak = std::max(peak, waiting);
      }
      while (turns.added < turns.order.size() && turns.waiting.erase(turns.order[turns.added]) > 0) {
        ++turns.added;
        waiting -= size;
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int> peak_waiting_gradients(const Schedule& schedule) {
  const auto peaks =
      peak_waiting_bytes(schedule, std::vector<double>(static_cast<std::size_t>(schedule.stage_count()), 1));
  return {peaks.begin(), peaks.end()};
}

std::vector<std::string> notes_on_order(const Schedule& schedule) {
  std::vector<std::string> notes;
  const std::vector<int> waiting = peak_waiting_gradients(schedule);
  if (*std::max_element(waiting.begin(), waiting.end()) > 0) {
    notes.push_back(
        fmt::format("The backwards are not in the order of the micro-batches. Gradients are still added in that order, "
                    "as on one device; at most {} sets of gradients per stage wait for their turn (rank by rank)",
                    fmt::join(waiting, ", ")));
  }
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    if (const auto action = forward_out_of_order(schedule.ranks[rank])) {
      notes.push_back(fmt::format(
          "Rank {} runs {} after a later micro-batch. Running statistics of batch norm follow the order of the "
          "forwards, so they differ from those of one device; the gradients do not",
          rank, to_string(*action)));
      break;
    }
  }
  return notes;
}

}  // namespace stagecoach
