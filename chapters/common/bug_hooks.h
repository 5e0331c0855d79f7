#pragma once
/// @file
/// Where the bugs of the museum (bugs.h) enter a run. Each function changes what it is given if its bug is injected,
/// and otherwise does nothing or returns it as it is.

#include <functional>
#include <memory>

#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/settings.h"
#include "nn/sequential.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/launch/launch.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"
#include "parallel/training/run_options.h"

namespace stagecoach {

/// Changes settings: rate_per_rank.
void put_bug_into(Settings& settings);
/// Changes the lowered table of a step: send_order, tag_twice. Does not check the result.
void put_bug_into(Schedule& schedule, Bug bug);
/// Changes which versions of the weights a plan's actions use: unstashed_weights.
void put_bug_into(Versions& versions, Bug bug);
/// Adds a layer at the end of a model or of its last stage, before it has memory: gradient_sum, wiped_gradients,
/// unused_parameter.
void put_bug_into(Sequential& model, const TrainingSettings& training);

/// Changes the options of a rank's run: stale_shard. Notes every bug. Without `comm` there is one rank.
void put_bug_into(RunOptions& options, Bug bug, const Communicator* comm);

/// Returns the layers of a stage, for its forwards and backwards: norm_twice.
std::shared_ptr<Sequential> with_bug(const std::shared_ptr<Sequential>& layers, Bug bug);
/// Returns what `rank` calls to reduce a bucket: bucket_order.
ReduceBucket with_bug(const ReduceBucket& reduce, Bug bug, int rank);

/// Returns the training settings of a rank. With `bug` injected, it has a seed of its own.
TrainingSettings seeded_by_rank(TrainingSettings training, Bug bug, int rank);
/// Returns the loader of the training batches of `rank`: skipped_step.
MicroBatchLoader with_bug(MicroBatchLoader loader, Bug bug, int rank);

/// Calls launch(). With send_order or tag_twice injected, the ranks' communicators have the bug.
void launch_ranks(const World& world, Bug bug, const std::function<void(Rank&)>& body);

}  // namespace stagecoach
