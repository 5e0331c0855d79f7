#pragma once
/// @file
/// The ledger says which version of the weights each action of a schedule uses. The schedule and the policy alone
/// determine it. They also determine the delays of the gradients, the versions that a rank must keep, and their memory.

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// [ranks][actions of the rank]: the version that a forward or backward uses, the version that an update makes, and
/// kNoVersion for communication.
using Ledger = std::vector<std::vector<int>>;
inline constexpr int kNoVersion = -1;

/// Returns the ledger of `schedule`, which must be legal, list its updates, and have one stage per rank. Throws Error
/// if a policy needs a version that does not exist yet.
Ledger make_ledger(const Schedule& schedule, Versions versions);

/// Returns for each version the index, in the list of `rank`, of the last action that uses it. After that action the
/// version can be freed, unless it is the newest.
std::vector<std::size_t> last_uses(const Schedule& schedule, const Ledger& ledger, int rank);

/// Returns for each rank the largest number of versions that it keeps at once.
std::vector<int> peak_versions(const Schedule& schedule, const Ledger& ledger);

/// Returns for each rank the peak memory, in bytes, of versions, gradients and activations together. A version of stage
/// s takes `weights[s]`; so do its gradients, from the first backward after an update to the next update. A micro-batch
/// in flight takes `activations[s]`. Backwards must not be split into I and W.
std::vector<double> peak_bytes(const Schedule& schedule, const Ledger& ledger, const std::vector<double>& weights,
                               const std::vector<double>& activations);

/// Returns the number of updates by which the gradient of each micro-batch is late: [stages][microbatches].
std::vector<std::vector<int>> delays_of(const Schedule& schedule, const Ledger& ledger);

/// Returns the largest delay on each stage, which is the delay once the pipeline is full.
std::vector<int> largest_delays(const Schedule& schedule, const Ledger& ledger);

/// Returns two tables for people: the versions of all forwards and backwards, with one line per micro-batch, and the
/// delays.
std::string to_text(const Schedule& schedule, const Ledger& ledger);
/// Returns one line "rank,action,version" per action, after a heading, without communication.
std::string to_csv(const Schedule& schedule, const Ledger& ledger);

}  // namespace stagecoach
