#pragma once
/// @file
/// A pipeline schedule as a value: which rank does what, in which order. Generators make it, `check` says whether it
/// can run, `simulate` when each action would run, `draw` shows it, and a student's own table is as good as ours.
///
/// It lists computations only; that a stage on one rank needs the output of a stage on another follows from them. Where
/// a schedule goes over several batches without a stop between them, the updates of the weights are listed too.

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/schedule/placement.h"

namespace stagecoach {

enum class Operation : std::uint8_t {
  forward,          ///< F
  backward,         ///< B: input and weight gradients at once
  backward_input,   ///< I: the input gradient alone
  backward_weight,  ///< W: the weight gradient, after I
  update,           ///< U: the optimizer's step, with the gradients of the micro-batches since the last one
};
inline constexpr int kOperations = 5;

/// "F", "B", "I", "W" or "U".
char letter_of(Operation operation);

/// One stage works on one micro-batch, or updates its weights.
struct Action {
  Operation operation = Operation::forward;
  std::int32_t stage = 0;       ///< from 0 (pictures enter) to the last (the loss)
  std::int32_t microbatch = 0;  ///< from 0; of an update its number, also from 0
  bool operator==(const Action&) const = default;
};

/// "2F5": stage 2, forward, micro-batch 5; the notation of torch.distributed.pipelining.
std::string to_string(const Action& action);

/// a / b, rounded up.
inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Schedule : Placement {
  int stages = 0;
  int microbatches = 0;
  /// What each rank does, in its order.
  std::vector<std::vector<Action>> ranks = {};
  /// Micro-batches of a batch, when the updates are listed. 0: the schedule is one step, and they follow after it.
  int batch = 0;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  /// Micro-batches from one update of a stage to the next: whole batches, in which each replica has as many as the
  /// others. The last ones of a schedule may be fewer.
  int unit(int stage) const { return std::lcm(batch, replicas_of(stage)); }
  /// How often a stage is updated.
  int updates(int stage) const { return batch == 0 ? 0 : ceil_div(microbatches, unit(stage)); }
  bool operator==(const Schedule&) const = default;
};

/// The same order of work for the first `count` micro-batches only, and their updates: for a step with too few samples
/// for all. A legal schedule stays legal. Throws Error unless 1 <= count <= its
/// micro-batches.
Schedule with_fewer_microbatches(const Schedule& schedule, int count);
/// Its forwards alone, for a test of the model.
Schedule forwards_of(const Schedule& schedule);

}  // namespace stagecoach
