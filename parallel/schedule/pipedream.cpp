#include "parallel/schedule/pipedream.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/phrases.h"
#include "core/base/throw_if.h"

namespace stagecoach {
namespace {

/// Returns the number of warm-up forwards, before forwards and backwards alternate, on each replica of `stage`.
int warm_up_of(const std::vector<int>& replicas, int stage) {
  const int from_here = std::accumulate(replicas.begin() + stage, replicas.end(), 0);
  return ceil_div(from_here, replicas[static_cast<std::size_t>(stage)]) - 1;
}

/// Returns the largest number of micro-batches that are between their forward and backward in a stage, over all its
/// replicas.
int max_in_flight(const std::vector<int>& replicas) {
  int most = 0;
  for (int s = 0; s < static_cast<int>(replicas.size()); ++s) {
    most = std::max(most, replicas[static_cast<std::size_t>(s)] * (warm_up_of(replicas, s) + 1));
  }
  return most;
}

/// Returns the number of which the micro-batches per batch must be a multiple.
int shared_evenly(const std::vector<int>& replicas, Versions versions) {
  const bool apart = versions == Versions::stash || versions == Versions::none;  // each stage updates on its own
  return apart ? 1 : std::accumulate(replicas.begin(), replicas.end(), 1, std::lcm<int, int>);
}

void require_sizes(const std::vector<int>& replicas, int microbatches, int batch) {
  const bool positive = std::all_of(replicas.begin(), replicas.end(), [](int count) { return count >= 1; });
  throw_if<UsageError>(
      replicas.empty() || !positive || microbatches < 1 || batch < 1,
      "expected at least 1 rank per stage, 1 micro-batch and 1 micro-batch per batch, got {}, {} and {}",
      fmt::join(replicas, ","), microbatches, batch);
  constexpr int kMaxPerBatch = 1 << 20;  // times the number of ranks, it does not overflow an int
  throw_if<UsageError>(batch > kMaxPerBatch, "expected at most {1} micro-batches per batch, got {0}", batch,
                       kMaxPerBatch);
}

void require_batch(const std::vector<int>& replicas, int batch, Versions versions) {
  const int least = min_batch(replicas, versions);
  const int step = shared_evenly(replicas, versions);
  throw_if<UsageError>(batch < least && versions == Versions::two_buffers,
                       "2bw: two versions of the weights do not suffice for {1} micro-batches in flight through {2}: "
                       "expected at least {3} micro-batches per batch, got {0}; use `microbatches` {3}",
                       batch, max_in_flight(replicas), counted(std::ssize(replicas), "stage"), least);
  if (batch % step != 0) {
    const int below = batch / step * step;
    throw UsageError(
        fmt::format("{}: {} micro-batches per batch cannot be divided evenly among stages on {} ranks, although all "
                    "stages update together; use `microbatches` {}{}, or versions `stash`",
                    to_string(versions), batch, fmt::join(replicas, ","),
                    below >= least ? fmt::format("{} or ", below) : "", below + step));
  }
}

/// Lists the actions of one replica of a stage for its share of the micro-batches `first` … `end` - 1.
class Replica {
 public:
  Replica(const Schedule& schedule, int stage, int number) : schedule_(schedule), stage_(stage), number_(number) {}

  void run(int first, int end, int warm_up, std::vector<Action>& actions) {
    std::vector<int> own;
    for (int i = first; i < end; ++i) {
      if (i % schedule_.replicas_of(stage_) == number_) {
        own.push_back(i);
      }
    }
    const int unit = schedule_.microbatches_per_update(stage_);
    const auto count = static_cast<int>(own.size());
    for (int step = 0; step < count + warm_up; ++step) {
      if (step < count) {
        actions.push_back({Operation::forward, stage_, own[static_cast<std::size_t>(step)]});
      }
      const int back = step - warm_up;
      if (back >= 0) {
        actions.push_back({Operation::backward, stage_, own[static_cast<std::size_t>(back)]});
        update_up_to(back + 1 < count ? own[static_cast<std::size_t>(back) + 1] / unit : ceil_div(end, unit), actions);
      }
    }
    update_up_to(ceil_div(end, unit), actions);  // for a replica without a micro-batch in the last update
  }

 private:
  /// Adds all updates before number `next`: the ones whose micro-batches are done on this rank.
  void update_up_to(int next, std::vector<Action>& actions) {
    while (updates_ < next) {
      actions.push_back({Operation::update, stage_, updates_++});
    }
  }

  const Schedule& schedule_;
  int stage_;
  int number_;
  int updates_ = 0;
};

}  // namespace

int min_batch(const std::vector<int>& replicas, Versions versions) {
  const int step = shared_evenly(replicas, versions);
  return versions == Versions::two_buffers ? ceil_div(max_in_flight(replicas), step) * step : step;
}

Schedule pipedream_schedule(const std::vector<int>& replicas, int microbatches, int batch, Versions versions) {
  require_sizes(replicas, microbatches, batch);
  require_batch(replicas, batch, versions);
  const int ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
  Schedule schedule{contiguous_placement(replicas), microbatches,
                    std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks)), batch};
  const int stretch = versions == Versions::flush ? batch : microbatches;  // micro-batches between two flushes
  for (int s = 0; s < schedule.stage_count(); ++s) {
    for (int number = 0; number < schedule.replicas_of(s); ++number) {
      Replica replica(schedule, s, number);
      auto& actions = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(s, number))];
      for (int first = 0; first < microbatches; first += stretch) {
        replica.run(first, std::min(first + stretch, microbatches), warm_up_of(replicas, s), actions);
      }
    }
  }
  return schedule;
}

BatchRange batches_of(const Schedule& schedule, const Action& action) {
  const bool is_of_unit = action.operation == Operation::update || action.operation == Operation::reduce_grad;
  const int count = is_of_unit ? schedule.microbatches_per_update(action.stage) : 1;  // micro-batches
  const int first = action.microbatch * count;
  const int last = std::min(first + count, schedule.microbatches) - 1;
  return {first / schedule.batch, last / schedule.batch + 1};
}

int batches_ahead(const Schedule& schedule) {
  int most = 0;
  for (const auto& actions : schedule.ranks) {
    // For each action, the oldest batch that this action or a later one works for.
    std::vector<int> oldest(actions.size());
    int left = ceil_div(schedule.microbatches, schedule.batch);
    for (std::size_t i = actions.size(); i-- > 0;) {
      left = std::min(left, batches_of(schedule, actions[i]).first);
      oldest[i] = left;
    }
    int newest = 0;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      newest = std::max(newest, batches_of(schedule, actions[i]).end - 1);
      most = std::max(most, newest - oldest[i]);
    }
  }
  return most;
}

}  // namespace stagecoach
