#include "parallel/schedule/lower.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "parallel/schedule/grid.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {
namespace {

/// A receive of a rank, and the positions in the rank's list of computations where it is used and posted.
struct Receive {
  Action action;
  std::size_t use;   // the index of the computation that waits for it
  std::size_t post;  // the index of the computation before which it is posted
  std::size_t order = 0;
};

/// Sorts by `post`; receives with the same `post` keep their order. (Clang warns of the library's stable_sort.)
void sort_by_post(std::vector<Receive>& receives) {
  for (std::size_t i = 0; i < receives.size(); ++i) {
    receives[i].order = i;
  }
  std::sort(receives.begin(), receives.end(),
            [](const Receive& a, const Receive& b) { return std::pair(a.post, a.order) < std::pair(b.post, b.order); });
}

/// Returns for each message the index, in its rank's list, of the computation that uses it.
MessageGrid<std::optional<std::uint32_t>> uses_of_messages(const Schedule& schedule) {
  MessageGrid<std::optional<std::uint32_t>> uses(schedule);
  for (const auto& actions : schedule.ranks) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (const auto receive = receive_before(schedule, actions[i])) {
        uses.at(*receive) = static_cast<std::uint32_t>(i);
      }
    }
  }
  return uses;
}

/// Returns the receives of each rank from each other rank, in the order of the sends.
std::vector<std::vector<std::vector<Receive>>> receives_by_pair(const Schedule& schedule) {
  const auto uses = uses_of_messages(schedule);
  std::vector<std::vector<std::vector<Receive>>> all(schedule.ranks.size());
  for (const auto& actions : schedule.ranks) {
    std::map<int, std::vector<Receive>> by_receiver;
    for (const Action& action : actions) {
      if (const auto send = send_after(schedule, action)) {
        const Action receive = receive_of(*send);
        if (const auto use = uses.at(receive)) {
          by_receiver[schedule.rank_of(receive)].push_back({.action = receive, .use = *use, .post = *use});
        }
      }
    }
    for (auto& [to, receives] : by_receiver) {
      all[static_cast<std::size_t>(to)].push_back(std::move(receives));
    }
  }
  return all;
}

/// Returns the receives of one rank in the order in which they are posted, with at most `most` posted at once.
std::vector<Receive> posting_order(std::vector<std::vector<Receive>> by_sender, int most) {
  std::vector<Receive> all;
  for (auto& receives : by_sender) {
    // A message that is sent earlier has its receive posted no later, even if it is used later.
    for (std::size_t i = receives.size(); i-- > 1;) {
      receives[i - 1].post = std::min(receives[i - 1].post, receives[i].post);
    }
    all.insert(all.end(), receives.begin(), receives.end());
  }
  sort_by_post(all);
  // There is room for the next receive as soon as an earlier one has been used.
  const auto max_unused = static_cast<std::size_t>(most);
  for (std::size_t i = 0; i < all.size() && max_unused > 0; ++i) {
    const std::size_t earliest = i < max_unused ? 0 : all[i - max_unused].use + 1;
    all[i].post = std::min(all[i].post, std::max(earliest, i > 0 ? all[i - 1].post : 0));
  }
  return all;
}

/// The end of each computation that another rank waits for, if all stages take equally long and messages take no time.
class EndsOfSenders {
 public:
  explicit EndsOfSenders(const Schedule& computations) : ends_(computations.ranks.size()), sent_(computations) {
    const Schedule lowered = lower(computations);
    const Simulation simulation = simulate(lowered, Costs::uniform(lowered.stage_count(), 1, 1, 1));
    for (std::size_t r = 0; r < lowered.ranks.size(); ++r) {
      for (std::size_t i = 0; i < lowered.ranks[r].size(); ++i) {
        const Action& action = lowered.ranks[r][i];
        if (!is_communication(action.operation)) {
          ends_[r].push_back(simulation.timeline[r][i].end);
        } else if (is_send(action.operation)) {
          sent_.at(receive_of(action)) = simulation.timeline[r][i].start;
        }
      }
    }
  }
  /// Returns the first computation of `rank` that does not end before the message of `receive` is sent.
  std::size_t computation_at(std::size_t rank, const Action& receive) const {
    const auto& ends = ends_[rank];
    return static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), sent_.at(receive)) - ends.begin());
  }

 private:
  std::vector<std::vector<double>> ends_;  // [ranks][computations of the rank, in its order]
  MessageGrid<double> sent_;
};

/// Posts receives early enough that no send has to wait if all stages take equally long: before the computation that
/// runs when the message is sent. As no send waits in that timeline, ranks never wait for each other forever, whatever
/// times the stages take.
void post_before_sends(std::vector<Receive>& receives, std::size_t rank, const EndsOfSenders& ends) {
  for (Receive& receive : receives) {
    receive.post = std::min(receive.post, ends.computation_at(rank, receive.action));
  }
  sort_by_post(receives);
}

std::vector<Action> lower_rank(const Schedule& schedule, const std::vector<Action>& actions,
                               const std::vector<Receive>& receives) {
  std::vector<Action> lowered;
  lowered.reserve(2 * actions.size() + receives.size());
  auto receive = receives.begin();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    for (; receive != receives.end() && receive->post <= i; ++receive) {
      lowered.push_back(receive->action);
    }
    const Action& action = actions[i];
    if (action.operation == Operation::update && schedule.replicas_of(action.stage) > 1) {
      lowered.push_back({Operation::reduce_grad, action.stage, action.microbatch});
    }
    lowered.push_back(action);
    if (const auto send = send_after(schedule, action)) {
      lowered.push_back(*send);
    }
  }
  return lowered;
}

/// Returns whether `stage` exists and another rank runs it on the micro-batch of `computation`.
bool is_elsewhere(const Schedule& schedule, int stage, const Action& computation) {
  const int microbatch = computation.microbatch;
  return stage >= 0 && stage < schedule.stage_count() &&
         schedule.rank_of(stage, microbatch) != schedule.rank_of(computation.stage, microbatch);
}

/// Adds a reduction for each stage that has none: after its last weight gradient, and after the message that this
/// computation may send.
std::vector<Action> with_reductions_of_rank(const std::vector<Action>& actions) {
  std::set<int> reduced;
  for (const Action& action : actions) {
    if (action.operation == Operation::reduce_grad) {
      reduced.insert(action.stage);
    }
  }
  std::deque<Action> all;  // from the last action on
  for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
    if (gives_weight_gradient(action->operation) && reduced.insert(action->stage).second) {
      const bool sends = !all.empty() && is_send(all.front().operation);
      all.insert(all.begin() + (sends ? 1 : 0),
                 Action{Operation::reduce_grad, action->stage, Action::kAllMicrobatches});
    }
    all.push_front(*action);
  }
  return {all.begin(), all.end()};
}

}  // namespace

std::optional<Action> send_after(const Schedule& schedule, const Action& computation) {
  const auto [operation, stage, microbatch] = computation;
  if (operation == Operation::forward && is_elsewhere(schedule, stage + 1, computation)) {
    return Action{Operation::send_forward, stage, microbatch};
  }
  if (gives_input_gradient(operation) && is_elsewhere(schedule, stage - 1, computation)) {
    return Action{Operation::send_backward, stage, microbatch};
  }
  return std::nullopt;
}

std::optional<Action> receive_before(const Schedule& schedule, const Action& computation) {
  const auto [operation, stage, microbatch] = computation;
  if (operation == Operation::forward && is_elsewhere(schedule, stage - 1, computation)) {
    return Action{Operation::receive_forward, stage, microbatch};
  }
  if (gives_input_gradient(operation) && is_elsewhere(schedule, stage + 1, computation)) {
    return Action{Operation::receive_backward, stage, microbatch};
  }
  return std::nullopt;
}

Action receive_of(const Action& send) {
  return send.operation == Operation::send_forward
             ? Action{Operation::receive_forward, send.stage + 1, send.microbatch}
             : Action{Operation::receive_backward, send.stage - 1, send.microbatch};
}

Action send_of(const Action& receive) {
  return receive.operation == Operation::receive_forward
             ? Action{Operation::send_forward, receive.stage - 1, receive.microbatch}
             : Action{Operation::send_backward, receive.stage + 1, receive.microbatch};
}

Action other_end(const Action& message) { return is_send(message.operation) ? receive_of(message) : send_of(message); }

int receives_from_text(const std::string& text) {
  constexpr int kMaxReceives = 1 << 16;
  if (text == "at-use" || text == "ahead") {
    return text == "ahead" ? kDefaultReceives : 0;
  }
  const int receives = number_from<int>(text).value_or(0);
  throw_if<UsageError>(receives < 1 || receives > kMaxReceives,
                       "expected at-use, ahead or a number of receives from 1 to {}, got '{}'", kMaxReceives, text);
  return receives;
}

Schedule lower(const Schedule& computations, const LowerOptions& options) {
  STAGECOACH_CHECK(!computations.is_lowered, "lower: expected a schedule without communication, got a lowered one");
  Schedule lowered = computations;
  lowered.is_lowered = true;
  lowered.sends_wait = options.sends_wait;
  std::optional<EndsOfSenders> ends;
  if (options.sends_wait && options.receives > 0) {
    ends.emplace(computations);
  }
  auto by_pair = receives_by_pair(computations);
  for (std::size_t r = 0; r < lowered.ranks.size(); ++r) {
    auto receives = posting_order(std::move(by_pair[r]), options.receives);
    if (ends) {
      post_before_sends(receives, r, *ends);
    }
    lowered.ranks[r] = lower_rank(computations, computations.ranks[r], receives);
  }
  return lowered;
}

Schedule with_reductions(const Schedule& schedule) {
  STAGECOACH_CHECK(schedule.is_lowered && schedule.batch == 0,
                   "with_reductions: expected a lowered schedule of one step");
  Schedule reduced = schedule;
  for (auto& actions : reduced.ranks) {
    actions = with_reductions_of_rank(actions);
  }
  return reduced;
}

}  // namespace stagecoach
