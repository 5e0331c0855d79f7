#pragma once
/// @file
/// Where the bugs of the museum (bugs.h) enter a run. Each function changes what it is given if its bug is injected,
/// and otherwise does nothing or returns it as it is.

#include <cstdint>
#include <functional>
#include <memory>

#include "chapters/common/settings.h"
#include "nn/sequential.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/launch/launch.h"
#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"

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

/// Returns the layers of a stage, for its forwards and backwards: norm_twice.
std::shared_ptr<Sequential> with_bug(const std::shared_ptr<Sequential>& layers, Bug bug);
/// Returns what `rank` calls to reduce a bucket: bucket_order.
ReduceBucket with_bug(const ReduceBucket& reduce, Bug bug, int rank);

/// Returns the training settings of a rank. With `bug` injected, it has a seed of its own.
TrainingSettings seeded_by_rank(TrainingSettings training, Bug bug, int rank);
/// Returns whether `rank` leaves out the batch of this step: skipped_step.
bool skips_batch(Bug bug, int rank, std::int64_t step);
/// Returns whether this rank resumes from the checkpoint before the newest one: stale_shard.
bool has_stale_shard(Bug bug, const Communicator& comm);

/// Calls launch(). With send_order or tag_twice injected, the ranks' communicators have the bug.
void launch_ranks(const World& world, Bug bug, const std::function<void(Rank&)>& body);

}  // namespace stagecoach
