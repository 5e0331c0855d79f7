#pragma once
/// @file
/// Pipelines whose gradients are late (chapter 4): they drain only after an epoch, and their stages keep versions of
/// their weights for micro-batches in flight.

#include <optional>
#include <string>
#include <vector>

#include "parallel/advise/rank_memory.h"
#include "parallel/advise/stage_seconds.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// Returns the names of these schedules: "pipedream-stash" and "pipedream-2bw". (Versions::vertical takes as long as
/// stash, in more memory.)
const std::vector<std::string>& late_schedules();
/// Returns how a schedule keeps versions; nothing unless it is one of late_schedules().
std::optional<Versions> versions_of(const std::string& schedule);

/// Returns the lowered beginning of an epoch: a third of its batches fill the pipeline, so that those of the second
/// third take what each batch of an epoch takes. Throws UsageError, which says what is possible, for too few
/// micro-batches.
Schedule late_schedule(Versions versions, int ranks, int microbatches);

/// Returns the seconds of all actions of a late_schedule(), for simulate(). An update copies the weights where a
/// micro-batch in flight needs the version before.
ActionSeconds seconds_of_late_actions(const Schedule& schedule, Versions versions,
                                      const std::vector<StageSeconds>& stages);

/// Returns the seconds from one batch to the next in the second third of the simulated late_schedule().
double seconds_per_batch(const Schedule& schedule, const Simulation& simulation);

/// Returns the largest number of updates by which a gradient is late.
int staleness_of(const Schedule& schedule, Versions versions);

/// Returns what `memory`, that of the ranks of a late_schedule() with one version of their weights, becomes with all
/// versions. A stage's weights take `weights` bytes.
std::vector<RankMemory> with_versions(std::vector<RankMemory> memory, const Schedule& schedule, Versions versions,
                                      const std::vector<double>& weights);

}  // namespace stagecoach
