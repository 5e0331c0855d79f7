/// @file
/// A solution of lab 5. The schedule of part 2 is made by list scheduling: tick by tick, each rank runs the most urgent
/// action that can run and has memory.

#include <algorithm>
#include <vector>

#include "chapters/05_interleaved/lab/interleaved.h"
#include "chapters/05_interleaved/lab/own_schedule.h"
#include "parallel/schedule/rank_actions.h"

namespace stagecoach::lab {
namespace {

/// The micro-batch and chunk of a forward. Backwards take the chunks from the last to the first.
struct Pass {
  int microbatch;
  int chunk;
};

/// Returns the sizes of as many groups as have at least p micro-batches, the larger ones first.
std::vector<int> group_sizes(int p, int m) {
  const int groups = std::max(m / p, 1);
  std::vector<int> sizes(static_cast<std::size_t>(groups), m / groups);
  std::for_each_n(sizes.begin(), m % groups, [](int& size) { ++size; });
  return sizes;
}

std::vector<Pass> passes_of(const std::vector<int>& groups, int chunks) {
  std::vector<Pass> passes;
  int first = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = 0; i < size; ++i) {
        passes.push_back({first + i, chunk});
      }
    }
    first += size;
  }
  return passes;
}

/// A rank in a V, with one stage on the arm down and one on the arm up.
class VShapedRanks {
 public:
  explicit VShapedRanks(const ScheduleTask& task)
      : task_(task),
        schedule_(empty_schedule(v_placement(task.ranks), task.ranks, task.microbatches)),
        done_(static_cast<std::size_t>(2 * task.ranks)) {}

  Schedule run() {
    const auto actions = static_cast<std::size_t>(6 * task_.microbatches);
    while (std::any_of(schedule_.ranks.begin(), schedule_.ranks.end(),
                       [&](const auto& list) { return list.size() < actions; })) {
      const std::vector<Counts> before = done_;  // what other ranks finish in this tick comes too late for it
      for (int rank = 0; rank < task_.ranks; ++rank) {
        run_tick(rank, before);
      }
    }
    return schedule_;
  }

 private:
  /// How many micro-batches a stage is done with. It takes them in their order.
  struct Counts {
    int forwards = 0;
    int input_gradients = 0;
    int weight_gradients = 0;
  };

  void run_tick(int rank, const std::vector<Counts>& before) {
    const int down = rank;
    const int up = 2 * task_.ranks - 1 - rank;
    const int free_places = task_.activations - held(down) - held(up);
    // Input gradients first: other ranks wait for them. A forward on the arm down leaves room for one on the arm up, so
    // that the oldest micro-batch can always go on. Weight gradients wait until nothing else can run.
    const bool ran = (gradient_arrived(up, before) && add(Operation::backward_input, up)) ||
                     (gradient_arrived(down, before) && add(Operation::backward_input, down)) ||
                     (free_places > 0 && input_arrived(up, before) && add(Operation::forward, up)) ||
                     (free_places > 1 && input_arrived(down, before) && add(Operation::forward, down)) ||
                     (weights_wait(up) && add(Operation::backward_weight, up)) ||
                     (weights_wait(down) && add(Operation::backward_weight, down));
    static_cast<void>(ran);  // otherwise the rank is idle
  }

  Counts& of(int stage) { return done_[static_cast<std::size_t>(stage)]; }
  int held(int stage) { return of(stage).forwards - of(stage).weight_gradients; }
  bool input_arrived(int stage, const std::vector<Counts>& before) {
    const int arrived = stage == 0 ? task_.microbatches : before[static_cast<std::size_t>(stage) - 1].forwards;
    return of(stage).forwards < arrived;
  }
  bool gradient_arrived(int stage, const std::vector<Counts>& before) {
    const bool is_last = stage + 1 == schedule_.stage_count();
    const int arrived = is_last ? of(stage).forwards : before[static_cast<std::size_t>(stage) + 1].input_gradients;
    return of(stage).input_gradients < arrived;
  }
  bool weights_wait(int stage) { return of(stage).weight_gradients < of(stage).input_gradients; }

  /// Appends the next action of this kind to the list of the stage's rank, and returns true.
  bool add(Operation operation, int stage) {
    Counts& counts = of(stage);
    int& next = operation == Operation::forward          ? counts.forwards
                : operation == Operation::backward_input ? counts.input_gradients
                                                         : counts.weight_gradients;
    const int rank = schedule_.stage_to_rank[static_cast<std::size_t>(stage)];
    schedule_.ranks[static_cast<std::size_t>(rank)].push_back({operation, stage, next++});
    return true;
  }

  const ScheduleTask& task_;
  Schedule schedule_;
  std::vector<Counts> done_;  // per stage
};

}  // namespace

Schedule interleaved(int ranks, int microbatches, int chunks) {
  const std::vector<int> groups = group_sizes(ranks, microbatches);
  const std::vector<Pass> passes = passes_of(groups, chunks);
  return for_each_rank(empty_schedule(ranks, microbatches, chunks), [&](RankActions rank, int r) {
    one_f_one_b_order(
        microbatches * chunks, 2 * (ranks - r - 1) + (chunks - 1) * groups.front(),
        [&](int i) {
          const auto [microbatch, chunk] = passes[static_cast<std::size_t>(i)];
          rank.forward(chunk * ranks + r, microbatch);
        },
        [&](int i) {
          const auto [microbatch, chunk] = passes[static_cast<std::size_t>(i)];
          rank.backward((chunks - 1 - chunk) * ranks + r, microbatch);
        });
  });
}

Schedule own_schedule(const ScheduleTask& task) { return VShapedRanks(task).run(); }

}  // namespace stagecoach::lab
