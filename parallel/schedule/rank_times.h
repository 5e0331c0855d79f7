#pragma once
/// @file
/// When the ranks of a simulation run their actions: what simulate.cpp counts.

#include <algorithm>
#include <map>
#include <span>
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
  /// `times` are those of a pipeline's messages; `costs` says the rest.
  Messages(const Schedule& schedule, const Costs& costs, MessageTimes times)
      : schedule_(schedule), costs_(costs), times_(std::move(times)), sizes_(costs.sizes), messages_(schedule) {}

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
    const double whole = times_.transfer.empty() ? 0 : times_.transfer[border];
    const double own = whole * size;
    free = start + own;
    return std::max(start + (times_.message[border] - whole) + own, posted);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  MessageTimes times_;
  std::vector<double> sizes_;  // see Costs::sizes
  MessageGrid<Message> messages_;
  std::map<std::pair<int, int>, Link> links_;  // from one rank to another
};

/// The clocks of a pipeline's ranks, which actions advance in an order in which each finds its inputs.
class RankTimes {
 public:
  /// `seconds` may be empty, or have the times of one step or of several, and `before` what precedes each of them.
  RankTimes(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds, const ActionSeconds& before,
            MessageTimes messages)
      : schedule_(schedule),
        costs_(costs),
        seconds_(seconds),
        before_(before),
        next_(schedule.ranks.size()),
        outputs_(schedule.stage_count(), schedule.microbatches),
        gradients_(schedule.stage_count(), schedule.microbatches),
        whole_(schedule.stage_count(), schedule.batch > 0 ? schedule.microbatches : 0),
        messages_(schedule, costs, std::move(messages)),
        free_(schedule.ranks.size(), 0),
        after_(schedule.ranks.size(), 0),
        reduced_(schedule.ranks.size(), 0) {}

  /// Lets the first step begin with the work that other steps do after the update of the one before.
  void begin_as_after_update() {
    for (std::size_t r = 0; r < after_.size(); ++r) {
      after_[r] = costs_.after_of({Operation::update, 0, 0}, r);
    }
  }

  /// Runs `action` on `rank` as soon as the rank is free and the input of the action is ready; a reduction also waits
  /// until `all_reached`, when the same rank of every other pipeline has reached it.
  Simulation::Timed run(int rank, const Action& action, double all_reached = 0) {
    const auto r = static_cast<std::size_t>(rank);
    double& free = free_[r];
    double start = free;
    if (is_send(action.operation)) {
      messages_.send(action, free);
      free = schedule_.sends_wait ? std::max(free, messages_.arrival(receive_of(action))) : free;
    } else if (is_receive(action.operation)) {
      messages_.post(action, can_begin(r));
    } else if (action.operation == Operation::reduce_grad) {
      return reduce(r, action, all_reached);
    } else if (action.operation == Operation::update) {
      start = update_start(r);
      if (action.microbatch == rendezvous_done_) {  // when the first of the ranks that meet asks, all have reached it
        rendezvous_time_ = rendezvous_end();
        ++rendezvous_done_;
      }
      update(r, action, rendezvous_time_);
    } else {
      start = std::max(can_begin(r), ready(action));
      free = start + work(r, action);
      after_[r] = costs_.after_of(action, r);
      note_results(action, free);
    }
    return {start, free};
  }
  /// Returns when `rank` can begin its next action.
  double can_begin(std::size_t rank) const {
    const bool is_listed = !before_.empty() && next_[rank] < before_[rank].size();
    return free_[rank] + (is_listed ? before_[rank][next_[rank]] : after_[rank]);
  }
  /// Returns when the ranks of the rendezvous in their next update have reached it.
  double rendezvous_end() const {
    double end = 0;
    for (const int each : schedule_.rendezvous) {
      const auto rank = static_cast<std::size_t>(each);
      const double there = update_start(rank) + costs_.norm_work_of(rank) + costs_.norm_exchange_of(rank);
      end = std::max(end, there + costs_.norm_sum);
    }
    return end;
  }
  double arrival(const Action& receive) const { return messages_.arrival(receive); }
  void set_sizes(const std::vector<double>& sizes) { messages_.set_sizes(sizes); }
  /// Returns the work that `rank` has left after its last action so far.
  double after_last(std::size_t rank) const { return after_[rank]; }
  /// Ends a step that lists no updates: each rank updates, those that meet from `all_reached` on.
  void end_step(double all_reached) {
    for (std::size_t rank = 0; rank < free_.size(); ++rank) {
      update(rank, {Operation::update, 0, 0}, all_reached);
    }
  }
  /// Lets the next step take the times of the first one again.
  void repeat() { std::fill(next_.begin(), next_.end(), 0); }
  /// Returns when each rank is free.
  const std::vector<double>& free() const { return free_; }

 private:
  /// Returns when `rank` begins an update that comes next: before one at the end of a step it waits for its reductions.
  double update_start(std::size_t rank) const { return std::max(can_begin(rank), reduced_[rank]); }

  void update(std::size_t rank, const Action& action, double all_reached) {
    const double start = update_start(rank);
    const double seconds = work(rank, action);
    free_[rank] = schedule_.has_rendezvous(static_cast<int>(rank)) ? all_reached + seconds - costs_.norm_work_of(rank)
                                                                   : start + seconds;
    after_[rank] = costs_.after_of(action, rank);
  }

  /// Returns the time of the next action of `rank`, which is `action`.
  double work(std::size_t rank, const Action& action) {
    const std::size_t next = next_[rank]++;
    if (seconds_.empty()) {
      return costs_.of(action, rank);
    }
    return next < seconds_[rank].size() ? seconds_[rank][next] : 0;  // without a time of the update
  }
  /// Before an update that is listed, the rank waits for its replicas. At the end of a step, the reductions of its
  /// stages overlap with its other work and run one after the other.
  Simulation::Timed reduce(std::size_t rank, const Action& action, double all_reached) {
    const auto stage = static_cast<std::size_t>(action.stage);
    const double ready = can_begin(rank);
    const double own_work = work(rank, action);
    const double seconds = costs_.average.empty() ? 0 : costs_.average[stage];
    const bool waits = schedule_.batch > 0;
    const double all_ready = std::max(ready, waits ? whole_.at(action.stage, action.microbatch) : all_reached);
    const double start = std::max(all_ready + own_work, waits ? 0 : reduced_[rank]);
    free_[rank] = waits ? start + seconds : ready + own_work;
    reduced_[rank] = start + seconds;
    after_[rank] = 0;
    return {start, reduced_[rank]};
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
  const ActionSeconds& seconds_;
  const ActionSeconds& before_;
  std::vector<std::size_t> next_;  // per rank: the next index in these two
  Grid<double> outputs_;
  Grid<double> gradients_;  // when the gradients of the stages' inputs are ready
  Grid<double> whole_;      // when the last replica has its gradients, per update
  Messages messages_;
  std::vector<double> free_;
  std::vector<double> after_;    // the rank's work before its next action
  std::vector<double> reduced_;  // when the reductions of each rank end
  int rendezvous_done_ = 0;      // in updates that are listed
  double rendezvous_time_ = 0;   // when the last one was
};

/// The clocks of all pipelines that run a schedule beside each other (Costs::other_pipelines). They do the same work at
/// the same places of the table, and meet in the reductions of gradients and in updates for the norm of all gradients.
class PipelineTimes {
 public:
  PipelineTimes(const Schedule& schedule, const Costs& costs, const ActionSeconds& seconds, const ActionSeconds& before)
      : schedule_(schedule) {
    pipelines_.emplace_back(schedule, costs, seconds, before, MessageTimes{costs.message, costs.transfer});
    for (const MessageTimes& messages : costs.other_pipelines) {
      pipelines_.emplace_back(schedule, costs, seconds, before, messages);
    }
  }

  /// See RankTimes.
  void begin_as_after_update() {
    for (RankTimes& pipeline : pipelines_) {
      pipeline.begin_as_after_update();
    }
  }
  /// Runs `action` on `rank` of each pipeline; returns its times in the first one.
  Simulation::Timed run(int rank, const Action& action) {
    double all_reached = 0;
    if (action.operation == Operation::reduce_grad) {
      for (const RankTimes& pipeline : pipelines_) {
        all_reached = std::max(all_reached, pipeline.can_begin(static_cast<std::size_t>(rank)));
      }
    }
    const Simulation::Timed times = pipelines_.front().run(rank, action, all_reached);
    for (RankTimes& pipeline : std::span(pipelines_).subspan(1)) {
      pipeline.run(rank, action, all_reached);
    }
    return times;
  }
  /// Ends a step; returns when the last rank is free.
  double end_step() {
    double all_reached = 0;
    for (const RankTimes& pipeline : pipelines_) {
      all_reached = std::max(all_reached, pipeline.rendezvous_end());
    }
    double last = 0;
    for (RankTimes& pipeline : pipelines_) {
      if (schedule_.batch == 0) {  // otherwise updates are listed
        pipeline.end_step(all_reached);
      }
      last = std::max(last, *std::max_element(pipeline.free().begin(), pipeline.free().end()));
    }
    return last;
  }
  void set_sizes(const std::vector<double>& sizes) {
    for (RankTimes& pipeline : pipelines_) {
      pipeline.set_sizes(sizes);
    }
  }
  void repeat() {
    for (RankTimes& pipeline : pipelines_) {
      pipeline.repeat();
    }
  }
  const RankTimes& first() const { return pipelines_.front(); }

 private:
  const Schedule& schedule_;
  std::vector<RankTimes> pipelines_;
};

}  // namespace stagecoach
