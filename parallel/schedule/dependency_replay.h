#pragma once
/// @file
/// Replays a schedule's actions in an order in which they can run, each as soon as what it needs is done. `check` asks
/// whether that reaches the end, `simulate` when each action runs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/schedule/grid.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

class DependencyReplay {
 public:
  /// `schedule` must be lowered, with stages, micro-batches and ranks in range, and must outlive this object.
  /// `sends_wait`: whether a send can run only when its receive is posted.
  DependencyReplay(const Schedule& schedule, bool sends_wait);
  explicit DependencyReplay(const Schedule& schedule) : DependencyReplay(schedule, schedule.sends_wait) {}

  /// Calls body(rank, action) for each action that can run, ranks in their own order.
  template <class Body>
  void run(const Body& body);

  /// The index, in the list of `rank`, of the action that could not run.
  std::size_t next(int rank) const { return next_[static_cast<std::size_t>(rank)]; }
  bool is_done(int rank) const { return next(rank) == schedule_.ranks[static_cast<std::size_t>(rank)].size(); }
  /// What `action` needs and has not yet been done.
  std::optional<Action> missing(const Action& action) const;

 private:
  /// What is done of a stage and a micro-batch.
  enum Done : std::uint8_t {
    kForward = 1,
    kInputGradient = 2,
    kWeightGradient = 4,
    kSentForward = 8,
    kPostedForward = 16,
    kSentBackward = 32,
    kPostedBackward = 64
  };

  bool has(int stage, int microbatch, Done what) const { return (done_.at(stage, microbatch) & what) != 0; }
  /// Notes that `action` is done.
  void finish(const Action& action, int rank);
  std::optional<Action> input_missing(const Action& computation) const;
  std::optional<Action> gradient_missing(const Action& reduction_or_update) const;
  std::optional<Action> replica_missing(const Action& reduction) const;
  /// Adds the ranks that may have waited for `action` to `open`.
  void wake(const Action& action, int rank, std::vector<int>& open) const;

  const Schedule& schedule_;
  bool sends_wait_;
  Grid<std::uint8_t> done_;
  std::vector<std::size_t> next_;  // of each rank
  std::vector<int> reductions_;    // done on each rank; where updates are listed it has one stage
};

template <class Body>
void DependencyReplay::run(const Body& body) {
  std::vector<int> open;
  for (int r = schedule_.rank_count() - 1; r >= 0; --r) {
    open.push_back(r);
  }
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    const auto& actions = schedule_.ranks[static_cast<std::size_t>(rank)];
    std::size_t& next = next_[static_cast<std::size_t>(rank)];
    while (next < actions.size() && !missing(actions[next])) {
      const Action& action = actions[next++];
      body(rank, action);
      finish(action, rank);
      wake(action, rank, open);
    }
  }
}

}  // namespace stagecoach
