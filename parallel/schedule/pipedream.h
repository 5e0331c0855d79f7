#pragma once
/// @file
/// PipeDream's schedule: 1F1B over many batches without a pipeline flush between them; the updates are listed in it.

#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// Returns 1F1B over `microbatches` micro-batches, in batches of `batch`; stage s is replicated on replicas[s] ranks.
/// Each rank warms up with ceil(ranks from its stage on / ranks of its stage) - 1 forwards. Then it alternates forwards
/// and backwards, and updates as often as Schedule::microbatches_per_update says. With Versions::flush it does so batch
/// by batch, and the pipeline drains before each update. Source: Narayanan et al., "PipeDream", 2019, section 3.2.
///
/// Throws UsageError that names the nearest legal number: for sizes below 1; with two_buffers, for a batch of fewer
/// micro-batches than can be in flight; with vertical, two_buffers and flush, which update all stages together, for a
/// batch that the replicas of a stage cannot share evenly.
Schedule pipedream_schedule(const std::vector<int>& replicas, int microbatches, int batch, Versions versions);

/// Returns the smallest number of micro-batches per batch that pipedream_schedule accepts.
int min_batch(const std::vector<int>& replicas, Versions versions);

/// A range of batches of a schedule that lists updates: from `first` to before `end`, counted from 0.
struct BatchRange {
  int first = 0;
  int end = 0;
  int count() const { return end - first; }
};
/// Returns the batches that `action` works for: one for most actions; for an update or a reduction, all batches whose
/// gradients it uses.
BatchRange batches_of(const Schedule& schedule, const Action& action);

/// Returns the largest number of batches by which the list of a rank runs ahead of itself: the rank begins batch b +
/// this number, often by posting a receive, before it is done with batch b. If rank 0 announces that a batch may begin
/// when rank 0 itself is this many batches before it, no rank that waits for the announcement is held up.
int batches_ahead(const Schedule& schedule);

}  // namespace stagecoach
