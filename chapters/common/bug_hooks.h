#pragma once
/// @file
/// Where the bugs of the museum (bugs.h) enter a run: each is put into settings, a plan, a model, a loader or a
/// communicator. Each function changes what it is given if its bug is injected, and otherwise does nothing or returns
/// it as it is.

#include <cstdint>
#include <memory>

#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/settings.h"
#include "nn/sequential.h"
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
/// Returns the seed of the initial weights of a replica on `rank`: own_seed.
std::uint64_t weight_seed(const TrainingSettings& training, int rank);

/// Returns a rank's loader of `shard` of each batch: other_labels, same_shard, skipped_step.
MicroBatchLoader make_rank_loader(Settings settings, const Dataset& data, LoaderFor purpose, const Rank& rank,
                                  MicroBatchLoader::Needs needs, std::int64_t microbatches, Shard shard);

/// Returns a communicator with the bug for the calls of `comm`, which must outlive it: send_order, tag_twice, own_seed,
/// bucket_order, stale_weights, lone_copies. Null for bugs elsewhere.
std::unique_ptr<Communicator> communicator_with(Bug bug, Communicator& comm);

}  // namespace stagecoach
