#pragma once
/// @file
/// How chapter 4 distributes a model over ranks: stages, their replicas, and a schedule for whole epochs.

#include <cstdint>
#include <vector>

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// A plan whose schedule covers a whole epoch.
struct StreamPlan : Plan {
  /// Follows --versions, --ranks, --replicas, --split and --balance. Throws UsageError, which says what is possible,
  /// for an impossible combination.
  StreamPlan(const Settings& settings, const Dataset& data);

  Versions versions;
  std::int64_t batch_size;
  int microbatches_per_batch;
  int receives;               ///< how many a rank may have posted at once (see LowerOptions)
  std::vector<double> sizes;  ///< of the epoch's micro-batches, relative to the largest (see Costs::sizes)
  double seconds = 0;         ///< between two micro-batches, as the partitioner predicts; 0 if it did not run

  /// Returns the batches per epoch.
  int batches() const { return ceil_div(schedule.microbatches, schedule.batch); }
  const std::vector<int>& replicas() const { return schedule.replicas; }
  /// Returns the sizes of all micro-batches of `images` images, starting with batch `first_batch`.
  std::vector<std::int64_t> microbatch_sizes(std::int64_t images, std::int64_t first_batch = 0) const;
  /// Returns the schedule for that many micro-batches, which may be none.
  Schedule schedule_for(std::size_t micro_batches) const;
};

/// Returns the role of rank `rank`: it saves what the first replica of its stage saves. Replicas of the last stage
/// share the sums of losses.
RankRole role_of(const StreamPlan& plan, int rank);

/// Returns the settings of the plan with its stages, since a resumed run must have the same stages.
Settings with_stages_of(const StreamPlan& plan);

}  // namespace stagecoach
