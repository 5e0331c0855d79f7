#pragma once
/// @file
/// How chapter 4 spreads a model over ranks: stages, their replicas, and a schedule that goes through whole epochs.

#include <cstdint>
#include <vector>

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// Its schedule is that of a whole epoch.
struct StreamPlan : Plan {
  Versions versions = Versions::stash;
  std::int64_t batch_size = 0;
  std::vector<double> averaging;  ///< seconds that messages take when the replicas of each stage average gradients
  int receives = 0;               ///< that a rank may have posted (see LowerOptions)
  double seconds = 0;             ///< between two micro-batches, as the partitioner predicts; 0 if it did not run

  /// Micro-batches per batch.
  int batch() const { return schedule.batch; }
  /// Batches per epoch.
  int batches() const { return ceil_div(schedule.microbatches, schedule.batch); }
  const std::vector<int>& replicas() const { return schedule.replicas; }
  /// The sizes of all micro-batches of `images` images, from batch `first_batch` on.
  std::vector<std::int64_t> sizes(std::int64_t images, std::int64_t first_batch = 0) const;
  /// The schedule for that many micro-batches.
  Schedule schedule_for(std::size_t micro_batches) const;
};

/// What the flags ask for: --versions, --ranks, --replicas, --split, --balance, --plan. Writes --save-plan. Throws
/// UsageError where that cannot be, and says what can.
StreamPlan make_stream_plan(const Settings& settings, const Dataset& data);

/// `settings` with the stages that the plan has: a resumed run must have the same ones.
Settings with_stages_of(const StreamPlan& plan, Settings settings);

}  // namespace stagecoach
