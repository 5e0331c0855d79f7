#pragma once
/// @file
/// When the ranks of a simulation run their actions: what simulate.cpp counts.

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "parallel/schedule/grid.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The messages of a step. A message starts as soon as it is sent, its receive is posted and the link is free; a link
/// carries the messages of one direction one after the other. A short message does not wait for the receive.
class Messages {
 public:
  Messages(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule), costs_(costs), sizes_(costs.sizes), messages_(schedule) {}

  /// Sets the sizes of the micro-batches that follow.
  void set_sizes(const std::vector<double>& sizes) { sizes_ = sizes; }

  void send(const Action& send, double now) { match(receive_of(send), now, true); }
  void post(const Action& receive, double now) { match(receive, now, false); }
  /// Returns when the message arrives. Its send and its receive must both have been given.
  double arrival(const Action& receive) const { return messages_.at(receive).time; }

 private:
  struct Message {
    double time = 0;  // of its first end; then of its arrival
    bool half = false;
  };
  struct Link {
    double free = 0;
    double free_for_short = 0;  // short messages fit between the packets of a long one
  };

  void match(const Action& receive, double now, bool is_sent) {
    Message& message = messages_.at(receive);
    message.time = message.half ? transfer(receive, is_sent ? now : message.time, is_sent ? message.time : now) : now;
    message.half = !message.half;
  }
  double transfer(const Action& receive, double sent, double posted) {
    const Action send = send_of(receive);
    const auto border = static_cast<std::size_t>(std::min(send.stage, receive.stage));
    Link& link = links_[{schedule_.rank_of(send), schedule_.rank_of(receive)}];
    const double size = sizes_.empty() ? 1 : sizes_[static_cast<std::size_t>(receive.microbatch)];
    const bool is_short = !costs_.bytes.empty() && costs_.bytes[border] * size <= costs_.eager_bytes;
    double& free = is_short ? link.free_for_short : link.free;
    const double start = std::max(is_short ? sent : std::max(sent, posted), free);
    const double whole = costs_.transfer.empty() ? 0 : costs_.transfer[border];
    const double own = whole * size;
    free = start + own;
    return std::max(start + (costs_.message[border] - whole) + own, posted);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<double> sizes_;  // see Costs::sizes
  MessageGrid<Message> messages_;
  std::map<std::pair<int, int>, Link> links_;  // from one rank to another
};

/// The clocks of all ranks, which actions advance in an order in which each finds its inputs.
class RankTimes {
 public:
  RankTimes(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds)
      : schedule_(schedule),
        costs_(costs),
        seconds_(seconds),
        next_(seconds.size()),
        outputs_(schedule.stage_count(), schedule.microbatches),
        gradients_(schedule.stage_count(), schedule.microbatches),
        whole_(schedule.stage_count(), schedule.batch > 0 ? schedule.microbatches : 0),
        messages_(schedule, costs),
        free_(schedule.ranks.size(), 0),
        after_(schedule.ranks.size(), 0),
        reduced_(schedule.ranks.size(), 0) {}

  /// Lets the first step begin with the work that other steps do after the update of the one before.
  void begin_as_after_update() {
    for (std::size_t r = 0; r < after_.size(); ++r) {
      after_[r] = costs_.after_of({Operation::update, 0, 0}, r);
    }
  }

  /// Runs `action` on `rank` as soon as the rank is free and the input of the action is ready.
  Simulation::Timed run(int rank, const Action& action) {
    double& free = free_[static_cast<std::size_t>(rank)];
    double start = free;
    if (is_send(action.operation)) {
      messages_.send(action, free);
      free = schedule_.sends_wait ? std::max(free, messages_.arrival(receive_of(action))) : free;
    } else if (is_receive(action.operation)) {
      messages_.post(action, free);
    } else if (action.operation == Operation::reduce_grad) {
      return reduce(static_cast<std::size_t>(rank), action);
    } else if (action.operation == Operation::update) {
      start = update_start(static_cast<std::size_t>(rank));
      update(static_cast<std::size_t>(rank), action);
    } else {
      double& after = after_[static_cast<std::size_t>(rank)];
      start = std::max(free + after, ready(action));
      free = start + work(static_cast<std::size_t>(rank), action);
      after = costs_.after_of(action, static_cast<std::size_t>(rank));
      note_results(action, free);
    }
    return {start, free};
  }
  double arrival(const Action& receive) const { return messages_.arrival(receive); }
  void set_sizes(const std::vector<double>& sizes) { messages_.set_sizes(sizes); }
  /// Returns the work that `rank` has left after its last action so far.
  double after_last(std::size_t rank) const { return after_[rank]; }
  /// Ends a step; returns the times at which the ranks are free.
  const std::vector<double>& end_step() {
    if (schedule_.batch == 0) {  // otherwise updates are listed
      meetings_ = 0;
      for (std::size_t rank = 0; rank < free_.size(); ++rank) {
        update(rank, {Operation::update, 0, 0});
      }
    }
    return free_;
  }

 private:
  /// Returns when `rank` begins an update that comes next: before one at the end of a step it waits for its reductions.
  double update_start(std::size_t rank) const { return std::max(free_[rank] + after_[rank], reduced_[rank]); }

  void update(std::size_t rank, const Action& action) {
    const double seconds = work(rank, action);
    if (schedule_.meets_others(static_cast<int>(rank))) {
      free_[rank] = met(action.microbatch) + seconds - costs_.norm_work_of(rank);
    } else {
      free_[rank] = update_start(rank) + seconds;
    }
    after_[rank] = costs_.after_of(action, rank);
  }

  /// Returns when the ranks that meet have met in update `number`. When the first of them asks, all have reached it.
  double met(int number) {
    if (number == meetings_) {
      met_ = 0;
      for (const int each : schedule_.meeting) {
        const auto rank = static_cast<std::size_t>(each);
        const double there = update_start(rank) + costs_.norm_work_of(rank) + costs_.norm_exchange_of(rank);
        met_ = std::max(met_, there + costs_.norm_sum);
      }
      ++meetings_;
    }
    return met_;
  }

  /// Returns the time of the next action of `rank`, which is `action`.
  double work(std::size_t rank, const Action& action) {
    if (seconds_.empty()) {
      return costs_.of(action, rank);
    }
    const std::size_t next = next_[rank]++;
    return next < seconds_[rank].size() ? seconds_[rank][next] : 0;  // without a time of the update
  }
  /// Before an update that is listed, the rank waits for its replicas. At the end of a step, the reductions of its
  /// stages overlap with its other work and run one after the other.
  Simulation::Timed reduce(std::size_t rank, const Action& action) {
    const double own_work = work(rank, action);
    const double seconds =
        own_work + (costs_.average.empty() ? 0 : costs_.average[static_cast<std::size_t>(action.stage)]);
    const bool waits = schedule_.batch > 0;
    double& end = waits ? free_[rank] : reduced_[rank];
    const double start = std::max(free_[rank] + after_[rank], waits ? whole_.at(action.stage, action.microbatch) : end);
    end = start + seconds;
    after_[rank] = waits ? 0 : after_[rank];
    return {start, end};
  }
  /// Returns when the tensor that `action` needs from another stage is ready.
  double ready(const Action& action) {
    const auto [operation, stage, microbatch] = action;
    if (const auto receive = receive_before(schedule_, action)) {
      return messages_.arrival(*receive);
    }
    if (operation == Operation::forward && stage > 0) {
      return outputs_.at(stage - 1, microbatch);
    }
    if (gives_input_gradient(operation) && stage + 1 < schedule_.stage_count()) {
      return gradients_.at(stage + 1, microbatch);
    }
    return 0;
  }
  void note_results(const Action& action, double end) {
    const auto [operation, stage, microbatch] = action;
    if (operation == Operation::forward) {
      outputs_.at(stage, microbatch) = end;
    } else if (gives_input_gradient(operation)) {
      gradients_.at(stage, microbatch) = end;
    }
    if (gives_weight_gradient(operation) && schedule_.batch > 0) {
      double& whole = whole_.at(stage, microbatch / schedule_.microbatches_per_update(stage));
      whole = std::max(whole, end);
    }
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const ActionSeconds& seconds_;   // may be empty
  std::vector<std::size_t> next_;  // per rank: the next index in `seconds_`
  Grid<double> outputs_;
  Grid<double> gradients_;  // when the gradients of the stages' inputs are ready
  Grid<double> whole_;      // when the last replica has its gradients, per update
  Messages messages_;
  std::vector<double> free_;
  std::vector<double> after_;    // the rank's work before its next action
  std::vector<double> reduced_;  // when the reductions of each rank end
  int meetings_ = 0;             // that have been
  double met_ = 0;               // when the last one was
};

}  // namespace stagecoach
