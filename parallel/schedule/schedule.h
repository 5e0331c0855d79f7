#pragma once
/// @file
/// A pipeline schedule as a value: which rank does what, in which order. Generators make it, `check` says whether it
/// can run, `simulate` when each action would run, `draw` shows it, and a student's own table is as good as ours.
///
/// It lists computations only; that a stage on one rank needs the output of a stage on another follows from them.

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

enum class Operation : std::uint8_t {
  forward,          ///< F
  backward,         ///< B: input and weight gradients at once
  backward_input,   ///< I: the input gradient alone
  backward_weight,  ///< W: the weight gradient, after I
};

/// "F", "B", "I" or "W".
char letter_of(Operation operation);

/// One stage works on one micro-batch.
struct Action {
  Operation operation = Operation::forward;
  std::int32_t stage = 0;       ///< from 0 (pictures enter) to the last (the loss)
  std::int32_t microbatch = 0;  ///< from 0
  bool operator==(const Action&) const = default;
};

/// "2F5": stage 2, forward, micro-batch 5; the notation of torch.distributed.pipelining.
std::string to_string(const Action& action);

struct Schedule {
  int stages = 0;
  int microbatches = 0;
  /// What each rank does, in its order.
  std::vector<std::vector<Action>> ranks;
  /// The rank that holds each stage. With c stages a rank, rank r usually holds stages r, r + p, r + 2p, …: chunks.
  std::vector<int> holder;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  bool operator==(const Schedule&) const = default;
};

/// The same order of work for the first `count` micro-batches only: for a step with too few samples for all. A legal
/// schedule stays legal. Throws Error unless 1 <= count <= its micro-batches.
Schedule with_fewer_microbatches(const Schedule& schedule, int count);
/// Its forwards alone, for a test of the model.
Schedule forwards_of(const Schedule& schedule);

/// Stages dealt to ranks in turn: stage s to rank s mod `ranks`.
std::vector<int> dealt_in_turn(int stages, int ranks);

}  // namespace stagecoach
