#pragma once
/// @file
/// The advisor: finds the schedule, mesh, micro-batches, split and recomputation with which a step is the fastest,
/// within a limit of memory.
///
/// The search is exact over candidates_of(request). It goes through the candidates in the order of a lower bound of
/// their time (Evaluator::least_seconds), and skips those that cannot change the answer: the bound is above the time of
/// the plan found for the same schedule and mesh, or above the times of six plans more than are asked for. The first of
/// each schedule is simulated in any case, to say why it is not among the answers. A candidate whose least_bytes exceed
/// the limit is rejected before its table is made. At the end, layers of the best plans, and of some after them, move
/// between stages as long as that makes a step faster (Evaluator::move_layers).

#include <string>
#include <utility>
#include <vector>

#include "parallel/advise/evaluate.h"

namespace stagecoach {

/// A candidate that is not among the answers, and why.
struct Rejected {
  Candidate candidate;
  double seconds = 0;  ///< of a step; 0 if it was not simulated
  std::string reason;  ///< "rank 0 needs 83.1 GiB, the limit is 80.0 GiB"
};

struct Advice {
  /// The best plan of each schedule and mesh, the fastest first; of equally fast ones, the one with least memory.
  std::vector<Evaluated> best = {};
  Evaluated one_device = {};  ///< the fastest plan of one rank, whatever its memory; no seconds if there is none
  std::vector<Rejected> rejected = {};
  int candidates = 0;  ///< in all
  int simulated = 0;   ///< of them
  int too_large = 0;   ///< of them: more than the limit of memory
};

enum class Prune { no, yes };

/// Returns the `count` best plans. Equal requests have equal answers, with Prune::no too, which only takes longer.
/// Throws UsageError if no candidate is within the limit: the error names the one that needs least memory.
Advice advise(const AdviceRequest& request, int count = 10, Prune prune = Prune::yes);

/// Returns "83.1 GiB", or "1.5 MiB" for less than a GiB.
std::string bytes_text(double bytes);

}  // namespace stagecoach
