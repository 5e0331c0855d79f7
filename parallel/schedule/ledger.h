#pragma once
/// @file
/// The ledger: which version of the weights each action of a schedule works with. It follows from the schedule and the
/// policy alone, and so do the delays of the gradients, the versions that a rank must keep, and their memory.

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/versions.h"

namespace stagecoach {

/// [ranks][actions of the rank]: of a forward or backward the version that it uses, of an update the one that it makes,
/// of communication kNoVersion.
using Ledger = std::vector<std::vector<int>>;
inline constexpr int kNoVersion = -1;

/// `schedule` must be legal, list its updates, and hold one stage per rank. Throws Error where a policy asks for a
/// version that is not there yet.
Ledger make_ledger(const Schedule& schedule, Versions versions);

/// For each version: the index, in the list of `rank`, of the last action that uses it. Afterwards it may go, unless it
/// is the newest.
std::vector<std::size_t> last_uses(const Schedule& schedule, const Ledger& ledger, int rank);

/// The most versions that each rank keeps at once.
std::vector<int> peak_versions(const Schedule& schedule, const Ledger& ledger);

/// The most bytes that versions, gradients and activations together take on each rank. One version of stage s takes
/// `weights[s]`; its gradients as much, from the first backward after an update to the next update; a micro-batch in
/// flight `activations[s]`. For backwards in one piece.
std::vector<double> peak_bytes(const Schedule& schedule, const Ledger& ledger, const std::vector<double>& weights,
                               const std::vector<double>& activations);

/// By how many updates the gradient of each micro-batch comes too late: [stages][microbatches].
std::vector<std::vector<int>> delays_of(const Schedule& schedule, const Ledger& ledger);

/// The most of them on each stage: once the pipeline is full.
std::vector<int> largest_delays(const Schedule& schedule, const Ledger& ledger);

/// Two tables to read: the versions of all forwards and backwards, one line per micro-batch, and the delays.
std::string to_text(const Schedule& schedule, const Ledger& ledger);
/// One line per action: "rank,action,version".
std::string to_csv(const Schedule& schedule, const Ledger& ledger);

}  // namespace stagecoach
