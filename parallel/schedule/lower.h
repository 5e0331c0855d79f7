#pragma once
/// @file
/// From a table of computations to one in which communication is listed too: what is sent, when a receive is posted,
/// and when gradients are summed over replicas. A run sends nothing that its table does not list.
///
/// Operations and their text are those of torch.distributed.pipelining, so lowered tables interchange too.

#include <optional>
#include <string>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// How many receives a rank may have posted and not yet used by default. Two in each direction: one whose tensor is
/// used next, and one whose tensor arrives meanwhile.
inline constexpr int kDefaultReceives = 4;

struct LowerOptions {
  /// How many receives a rank may have posted and not yet used. Each takes the memory of its message. A receive is
  /// posted as early as this allows; with 0 only at its use, right before the computation that waits for it. One that
  /// is sent before a message that is used earlier is posted before that, whatever the number.
  int receives = kDefaultReceives;
  /// Whether a send ends only when its receiver has posted the receive and the message is there. Then receives are
  /// posted no later than before the computation during which they are sent, if all stages take equally long, even if
  /// there are more of them than `receives`. Otherwise ranks that send to each other would wait for each other
  /// forever, as they do with receives at their use. Megatron-LM posts them in the same call in which it sends.
  bool sends_wait = false;
};

/// Reads "at-use" (0), "ahead" (the default) or a number of receives from 1 on. Throws UsageError that lists these.
int receives_from_text(const std::string& text);

/// Adds the communication that `computations` needs:
/// - a send right after the computation that makes what another rank needs;
/// - a receive, posted as early as the options allow. Receives from one rank are posted in the order in which it sends,
///   as transports without tags need it (NCCL);
/// - a reduction before each update of a stage that has replicas.
/// Stages on one rank hand over without a message. Every stage, micro-batch and rank of `computations` must be in
/// range; whether the result can run is for `check` to say. Throws Error when communication is listed already,
/// and with sends_wait for computations that cannot run.
Schedule lower(const Schedule& computations, const LowerOptions& options = {});

/// Data parallel: the same pipeline runs several times, each on its part of a batch, so each stage's gradients are
/// summed over the pipelines. Adds the reductions to a lowered schedule of one step: of each stage after its last
/// weight gradient, when the rank may have other stages still to run. A reduction that is listed already stays in its
/// place.
Schedule with_reductions(const Schedule& schedule);

/// The send that follows `computation`; nothing if no other rank needs its result.
std::optional<Action> send_after(const Schedule& schedule, const Action& computation);
/// The receive that `computation` waits for; nothing if it needs nothing of another rank.
std::optional<Action> receive_before(const Schedule& schedule, const Action& computation);

/// The receive of the message that `send` sends: RECV_F of stage s + 1 for SEND_F of stage s.
Action receive_of(const Action& send);
/// The send of the message that `receive` receives.
Action send_of(const Action& receive);

}  // namespace stagecoach
