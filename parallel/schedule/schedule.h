#pragma once
/// @file
/// A pipeline schedule as a value: which rank does what, in which order, messages included. Generators list
/// computations; `lower` adds the communication; `check` says whether the result can run, `simulate` when each action
/// would run, `draw` shows it, `Pipeline` runs it. A student's own table is as good as ours.
///
/// Where a schedule goes over several batches without a stop between them, the updates of the weights are listed too.

#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/schedule/placement.h"

namespace stagecoach {

/// The names are those of torch.distributed.pipelining, and so is what the stage of an action is: a rank sends the
/// output of `stage` forward and the gradient of its input backward; it receives the input of `stage` forward and the
/// gradient of its output backward.
enum class Operation : std::uint8_t {
  forward,           ///< F
  backward,          ///< B: input and weight gradients at once
  backward_input,    ///< I: the input gradient alone
  backward_weight,   ///< W: the weight gradient, after I
  update,            ///< U: the optimizer's step, with the gradients of the micro-batches since the last one
  send_forward,      ///< SEND_F: to the rank of the next stage
  receive_forward,   ///< RECV_F: posts a receive; the forward of the stage waits for it
  send_backward,     ///< SEND_B: to the rank of the stage before
  receive_backward,  ///< RECV_B: posts a receive; the backward of the stage waits for it
  reduce_grad,       ///< REDUCE_GRAD: sums the stage's gradients over its replicas
};
inline constexpr int kOperations = 10;

/// "F", "B", "I", "W", "U", "SEND_F", "RECV_F", "SEND_B", "RECV_B" or "REDUCE_GRAD".
std::string_view symbol_of(Operation operation);
/// "forward", "backward", "backward_input", "backward_weight", "optimizer", "send", "receive" or "reduce": for errors
/// and traces.
const char* name_of(Operation operation);
/// F, B, I and W: a stage works on a micro-batch.
constexpr bool is_computation(Operation operation) { return operation <= Operation::backward_weight; }
/// Sends, receives and reductions.
constexpr bool is_communication(Operation operation) { return operation >= Operation::send_forward; }
constexpr bool is_send(Operation operation) {
  return operation == Operation::send_forward || operation == Operation::send_backward;
}
constexpr bool is_receive(Operation operation) {
  return operation == Operation::receive_forward || operation == Operation::receive_backward;
}
constexpr bool is_message(Operation operation) { return is_send(operation) || is_receive(operation); }
/// B and I: gradients go on to the stage before.
constexpr bool gives_input_gradient(Operation operation) {
  return operation == Operation::backward || operation == Operation::backward_input;
}
/// B and W: the micro-batch leaves the stage.
constexpr bool gives_weight_gradient(Operation operation) {
  return operation == Operation::backward || operation == Operation::backward_weight;
}

/// One stage works on one micro-batch, communicates, or updates its weights.
struct Action {
  /// Of a reduction at the end of a step.
  static constexpr std::int32_t kAllMicrobatches = -1;

  Operation operation = Operation::forward;
  std::int32_t stage = 0;       ///< from 0 (images enter) to the last (the loss)
  std::int32_t microbatch = 0;  ///< from 0; of an update and its reductions the number of the update, also from 0
  bool operator==(const Action&) const = default;
};

/// "2F5": stage 2, forward, micro-batch 5; the notation of torch.distributed.pipelining.
std::string to_string(const Action& action);

/// a / b, rounded up.
inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Schedule : Placement {
  int microbatches = 0;
  /// What each rank does, in its order.
  std::vector<std::vector<Action>> ranks = {};
  /// Micro-batches of a batch, when the updates are listed. 0: the schedule is one step, and they follow after it.
  int batch = 0;
  /// Whether communication is listed (see lower.h).
  bool is_lowered = false;
  /// Whether a send ends only when its receiver has taken the message. Otherwise the rank goes on at once.
  bool sends_wait = false;

  int rank_count() const { return static_cast<int>(ranks.size()); }
  /// Micro-batches from one update of a stage to the next: whole batches, in which each replica has as many as the
  /// others. The last ones of a schedule may be fewer.
  int microbatches_per_update(int stage) const { return std::lcm(batch, replicas_of(stage)); }
  /// How often a stage is updated.
  int updates(int stage) const { return batch == 0 ? 0 : ceil_div(microbatches, microbatches_per_update(stage)); }
  bool operator==(const Schedule&) const = default;
};

/// The same order of work for the first `count` micro-batches only, and their updates: for a step with too few samples
/// for all. A legal schedule stays legal. Throws Error unless 1 <= count <= its micro-batches.
Schedule with_fewer_microbatches(const Schedule& schedule, int count);
/// Its forwards alone and their messages, for a test of the model.
Schedule forwards_of(const Schedule& schedule);
/// Its computations and updates alone: what a generator lists.
Schedule computations_of(const Schedule& schedule);

}  // namespace stagecoach
