#pragma once
/// @file
/// Replays a schedule's actions in an order in which they can run: each action runs as soon as everything that it needs
/// is done. `check` uses this to find out whether every rank reaches its end, `simulate` to find out when each action
/// runs.

#include <cstddef>
#include <optional>
#include <vector>

#include "parallel/schedule/grid.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

class DependencyReplay {
 public:
  /// `schedule` must be lowered, its stages, micro-batches and ranks must be in range, and it must outlive this object.
  /// `sends_wait` says whether a send can run only after its receive is posted.
  DependencyReplay(const Schedule& schedule, bool sends_wait);
  explicit DependencyReplay(const Schedule& schedule) : DependencyReplay(schedule, schedule.sends_wait) {}

  /// Calls body(rank, action) for each action that can run. Each rank keeps the order of its list.
  template <class Body>
  void run(const Body& body);

  /// Returns the index, in the list of `rank`, of its next action: after `run`, the one that could not run.
  std::size_t next(int rank) const { return next_[static_cast<std::size_t>(rank)]; }
  bool is_done(int rank) const { return next(rank) == schedule_.ranks[static_cast<std::size_t>(rank)].size(); }
  /// Returns an action that `action` needs and that is not done yet; nothing if `action` can run.
  std::optional<Action> missing(const Action& action) const;

 private:
  /// Returns `action` if it is not done yet. For a backward, its input gradient counts.
  std::optional<Action> unless_done(const Action& action) const;
  /// Records that `action` is done.
  void finish(const Action& action, int rank);
  std::optional<Action> input_missing(const Action& computation) const;
  std::optional<Action> gradient_missing(const Action& reduction_or_update) const;
  std::optional<Action> replica_missing(const Action& reduction) const;
  std::optional<Action> rank_missing(const Action& update) const;
  /// Returns the next action of `rank` if it has not reached the reduction or update `rendezvous`; `done` are those
  /// that each rank has done.
  std::optional<Action> not_there(int rank, const Action& rendezvous, const std::vector<int>& done) const;
  /// Adds to `open` the ranks that may have been waiting for `action`.
  void wake(const Action& action, int rank, std::vector<int>& open) const;

  const Schedule& schedule_;
  bool sends_wait_;
  Grid<unsigned> done_;            // one bit per operation; B counts as I and W
  std::vector<std::size_t> next_;  // one per rank
  std::vector<int> reductions_;    // done on each rank; a rank has a single stage if updates are listed
  std::vector<int> updates_;       // the same
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
