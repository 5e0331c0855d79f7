#pragma once
/// @file
/// The schedule of PipeDream: 1F1B over many batches without a stop between them, with the updates in it.

#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// 1F1B over `microbatches` micro-batches, of which `batch` make a batch; stage s is on replicas[s] ranks, side by
/// side. Each rank warms up with ceil(ranks from its stage on / ranks of its stage) - 1 forwards. Then it runs a
/// forward and a backward in turn, and updates as often as Schedule::microbatches_per_update says. With
/// Versions::flush it does so batch by batch, and the pipeline drains before each update. Source: Narayanan et al.,
/// "PipeDream", 2019, section 3.2. Throws UsageError, with the nearest legal number: for sizes below 1; with
/// two_buffers, for a batch of fewer micro-batches than can be on their way; with vertical, two_buffers and flush,
/// which update all stages at once, for a batch that the replicas of a stage cannot share evenly.
Schedule pipedream_schedule(const std::vector<int>& replicas, int microbatches, int batch, Versions versions);

/// The fewest micro-batches per batch that it takes.
int least_batch(const std::vector<int>& replicas, Versions versions);

/// Batches of a schedule that lists updates, from `first` to before `end`, counted from 0.
struct BatchRange {
  int first = 0;
  int end = 0;
};
/// The batches that `action` works for: one; but an update or a reduction all those whose gradients it uses.
BatchRange batches_of(const Schedule& schedule, const Action& action);

/// By how many batches the list of a rank is ahead of itself at most: it begins batch b + this, often by posting a
/// receive, before it is done with batch b. If rank 0 says that a batch may begin when it is itself this many batches
/// before it, then nobody who waits for its word holds it up.
int batches_ahead(const Schedule& schedule);

}  // namespace stagecoach
