#pragma once
/// @file
/// A pipeline schedule as a value: what each rank does, in which order, including messages. Generators list
/// computations; `lower` adds the communication; `check` says whether the result can run; `simulate` says when each
/// action would run; `draw` shows it; `Pipeline` runs it. A table that a student writes works as well as a built-in
/// one.
///
/// A schedule that covers several batches without a pipeline flush between them lists the updates of the weights too.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/schedule/placement.h"

namespace stagecoach {

/// The names are those of torch.distributed.pipelining, and so is the meaning of the stage of an action: a rank sends
/// the output of `stage` forward and the gradient of its input backward; it receives the input of `stage` forward and
/// the gradient of its output backward.
enum class Operation : std::uint8_t {
  forward,           ///< F
  backward,          ///< B: input and weight gradients at once
  backward_input,    ///< I: the input gradient alone
  backward_weight,   ///< W: the weight gradient, after I
  update,            ///< U: the optimizer's step, with the gradients of the micro-batches since the last one
  send_forward,      ///< SEND_F: to the rank of the next stage
  receive_forward,   ///< RECV_F: posts a receive; the forward of the stage waits for it
  send_backward,     ///< SEND_B: to the rank of the previous stage
  receive_backward,  ///< RECV_B: posts a receive; the backward of the stage waits for it
  reduce_grad,       ///< REDUCE_GRAD: sums the stage's gradients over its replicas
};
inline constexpr int kOperations = 10;
/// Returns a bit for each operation, for sets of operations.
constexpr unsigned bit_of(Operation operation) { return 1U << static_cast<unsigned>(operation); }

/// Returns "F", "B", "I", "W", "U", "SEND_F", "RECV_F", "SEND_B", "RECV_B" or "REDUCE_GRAD".
std::string_view symbol_of(Operation operation);
/// Returns "forward", "backward", "backward_input", "backward_weight", "optimizer", "send", "receive" or "reduce": the
/// name in errors and traces.
const char* name_of(Operation operation);
/// Returns whether `operation` is F, B, I or W, in which a stage works on a micro-batch.
constexpr bool is_computation(Operation operation) { return operation <= Operation::backward_weight; }
/// Returns whether `operation` is a send, a receive or a reduction.
constexpr bool is_communication(Operation operation) { return operation >= Operation::send_forward; }
constexpr bool is_send(Operation operation) {
  return operation == Operation::send_forward || operation == Operation::send_backward;
}
constexpr bool is_receive(Operation operation) {
  return operation == Operation::receive_forward || operation == Operation::receive_backward;
}
constexpr bool is_message(Operation operation) { return is_send(operation) || is_receive(operation); }
/// Returns whether `operation` is B or I, after which the gradient can go to the previous stage.
constexpr bool gives_input_gradient(Operation operation) {
  return operation == Operation::backward || operation == Operation::backward_input;
}
/// Returns whether `operation` is B or W, after which the stage is done with the micro-batch.
constexpr bool gives_weight_gradient(Operation operation) {
  return operation == Operation::backward || operation == Operation::backward_weight;
}

/// An action: one stage works on one micro-batch, communicates, or updates its weights.
struct Action {
  /// The micro-batch of a reduction at the end of a step.
  static constexpr std::int32_t kAllMicrobatches = -1;

  Operation operation = Operation::forward;
  std::int32_t stage = 0;       ///< from 0 (images enter) to the last (the loss)
  std::int32_t microbatch = 0;  ///< from 0; for an update and its reductions, the index of the update
  bool operator==(const Action&) const = default;
};

/// Returns the action in the notation of torch.distributed.pipelining: "2F5" is stage 2, forward, micro-batch 5.
std::string to_string(const Action& action);

/// Returns a / b, rounded up.
inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Schedule : Placement {
  int microbatches = 0;
  /// The actions of each rank, in the order in which it runs them.
  std::vector<std::vector<Action>> ranks = {};
  /// Micro-batches per batch, if the updates are listed. 0: the schedule is one step, and the updates follow it.
  int batch = 0;
  /// Whether communication is listed (see lower.h).
  bool is_lowered = false;
  /// Whether a send ends only when its receiver has taken the message. Otherwise the rank continues at once.
  bool sends_wait = false;
  /// The ranks that meet in each update: all if the norm of all gradients clips them, two with tied weights, or none.
  std::vector<int> rendezvous = {};

  int rank_count() const { return static_cast<int>(ranks.size()); }
  /// Returns the number of actions of all ranks.
  std::size_t action_count() const;
  using Placement::rank_of;
  /// Returns the rank that runs `action`.
  int rank_of(const Action& action) const { return rank_of(action.stage, action.microbatch); }
  bool has_rendezvous(int rank) const {
    return std::find(rendezvous.begin(), rendezvous.end(), rank) != rendezvous.end();
  }
  /// Returns the number of micro-batches from one update of a stage to the next: whole batches in which all replicas
  /// have equally many micro-batches. The last update of a schedule may have fewer.
  int microbatches_per_update(int stage) const { return std::lcm(batch, replicas_of(stage)); }
  /// Returns how often a stage is updated.
  int updates(int stage) const { return batch == 0 ? 0 : ceil_div(microbatches, microbatches_per_update(stage)); }
  bool operator==(const Schedule&) const = default;
};

/// Calls see(rank, action_index, action) for every action, rank by rank.
template <class See>
void for_each_action(const Schedule& schedule, const See& see) {
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t action_index = 0; action_index < schedule.ranks[rank].size(); ++action_index) {
      see(rank, action_index, schedule.ranks[rank][action_index]);
    }
  }
}

/// Returns the same order of work for the first `count` micro-batches only, with their updates: for a step with too few
/// samples for all micro-batches. A legal schedule stays legal. Throws Error unless `count` is from 1 to the number of
/// micro-batches of `schedule`.
Schedule with_fewer_microbatches(const Schedule& schedule, int count);
/// Returns only the forwards of `schedule` and their messages, for an evaluation of the model.
Schedule forwards_of(const Schedule& schedule);
/// Returns the rest of a schedule of one step: the backwards and their messages.
Schedule backwards_of(const Schedule& schedule);
/// Returns only the computations and updates of `schedule`, as a generator lists them.
Schedule computations_of(const Schedule& schedule);

}  // namespace stagecoach
