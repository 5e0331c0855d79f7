#pragma once
/// @file
/// Lowers a table of computations to one that also lists communication: what is sent, when a receive is posted, and
/// when gradients are summed over replicas. A run sends nothing that its table does not list.
///
/// The operations and their text are those of torch.distributed.pipelining, so lowered tables interchange too.

#include <optional>
#include <string>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The default of LowerOptions::receives. It allows two receives in each direction: one whose tensor is used next, and
/// one whose tensor arrives meanwhile.
inline constexpr int kDefaultReceives = 4;

struct LowerOptions {
  /// How many receives a rank may have posted and not yet used. Each takes the memory of its message. A receive is
  /// posted as early as this limit allows; with 0, only right before the computation that uses it. If a rank uses two
  /// messages from another rank in a different order from the one in which they are sent, the receive of the first one
  /// sent is still posted first, whatever the limit.
  int receives = kDefaultReceives;
  /// Whether a send ends only when its receiver has posted the receive and the message has arrived. If so, a receive is
  /// posted no later than before the computation during which its message is sent, if all stages take equally long,
  /// even if this exceeds `receives`. If receives were posted later, ranks that send to each other would wait for each
  /// other forever, as they do with receives at their use. Megatron-LM posts a receive in the same call as the send.
  bool sends_wait = false;
};

/// Reads "at-use" (0), "ahead" (the default) or a number of receives from 1 on. Throws UsageError that lists these
/// choices for any other text.
int receives_from_text(const std::string& text);

/// Adds the communication that `computations` needs:
/// - a send right after the computation whose result another rank needs;
/// - a receive, posted as early as the options allow. Receives from one rank are posted in the order in which it sends,
///   as transports without tags (NCCL) require;
/// - a reduction before each update of a stage that has replicas.
/// Stages on the same rank exchange tensors without a message. Every stage, micro-batch and rank of `computations` must
/// be in range; whether the result can run is for `check` to say. Throws Error if communication is listed already, and
/// with `sends_wait` if the computations cannot run.
Schedule lower(const Schedule& computations, const LowerOptions& options = {});

/// Adds the reductions of data parallelism to a lowered schedule of one step. With data parallelism the same pipeline
/// runs several times, each on its part of a batch, so the gradients of each stage are summed over the pipelines. A
/// stage is reduced after its last weight gradient, when the rank may still have other stages to run. A reduction that
/// is already listed keeps its place.
Schedule with_reductions(const Schedule& schedule);

/// Returns the send that follows `computation`; nothing if no other rank needs its result.
std::optional<Action> send_after(const Schedule& schedule, const Action& computation);
/// Returns the receive that `computation` waits for; nothing if it needs nothing from another rank.
std::optional<Action> receive_before(const Schedule& schedule, const Action& computation);

/// Returns the receive of the message that `send` sends: RECV_F of stage s + 1 for SEND_F of stage s.
Action receive_of(const Action& send);
/// Returns the send of the message that `receive` receives.
Action send_of(const Action& receive);
/// Returns the other end of a message: the receive of a send, or the send of a receive.
Action other_end(const Action& message);

}  // namespace stagecoach
