#pragma once
/// @file
/// What one candidate takes: the time of its step, its memory and its messages, by the simulation that the chapters'
/// plans use.

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/advise/candidate.h"
#include "parallel/advise/mesh_links.h"
#include "parallel/advise/rank_memory.h"
#include "parallel/advise/stage_seconds.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// A candidate with the numbers of its step.
struct Evaluated {
  Candidate candidate;
  Split split;                          ///< layers per stage
  double seconds = 0;                   ///< of a step
  double idle = 0;                      ///< share of it, in the mean of the ranks
  std::vector<double> busy = {};        ///< seconds of work per rank of a pipeline
  std::vector<RankMemory> memory = {};  ///< per rank of a pipeline
  int staleness = 0;                    ///< updates by which a gradient is late, at most
  double link_bytes = 0;                ///< over the busiest link in one direction, in a step

  /// Returns the memory of the rank that needs most.
  const RankMemory& worst() const;
};

/// Evaluates candidates of one request, and keeps what they have in common: costs, tables, splits and links.
class Evaluator {
 public:
  /// `request` must outlive it.
  explicit Evaluator(const AdviceRequest& request) : request_(request), links_(request.network, request.link_speed) {}

  /// Returns the costs of the candidate's layers. Throws UsageError if there are none.
  const ModelCosts& costs(const Candidate& candidate);
  /// Returns the least seconds of the candidate's step with its split, whatever the size of its buckets: see
  /// least_step_seconds(). Throws UsageError for more stages than layers.
  double least_seconds(const Candidate& candidate);
  /// Returns the memory of a candidate, with its split. Throws UsageError, which says why, for one that is not
  /// possible: more stages than layers, or sizes that the schedule does not accept.
  Evaluated memory(const Candidate& candidate);
  /// Adds the times of the step. Unless the request fixes the size of buckets, it takes larger ones where they make the
  /// step faster by more than 0.1%: with fewer buckets the latencies of their rings are fewer, but the first is full
  /// later. It does not try them for a pipeline that even without these latencies takes more than `worth` seconds.
  void add_times(Evaluated& evaluated, double worth = std::numeric_limits<double>::infinity());
  /// Moves layers from one stage of a pipeline to another as long as that makes the step faster and the limit of memory
  /// allows it: the splits of candidates are found from sums of their costs, these by simulated steps.
  void move_layers(Evaluated& evaluated);

 private:
  using Sizes = std::tuple<std::string, int, int, int>;  // of a table: schedule, ranks, micro-batches, chunks

  const Schedule& table(const Candidate& candidate);
  Split split_of(const Candidate& candidate);
  Evaluated memory(const Candidate& candidate, Split split);
  double least_seconds(const Evaluated& evaluated);
  std::vector<StageSeconds> stages_of(const Evaluated& evaluated);
  /// Returns by how much tied weights make the update of each rank longer: [ranks].
  std::vector<double> tied_seconds(const Evaluated& evaluated);
  /// Returns the slowest link of each stage's groups of `direction`: [stages].
  std::vector<Link> group_links(const Evaluated& evaluated, MeshDirection direction);
  /// Returns the seconds in which each stage's gradients are reduced, bucket by bucket.
  std::vector<double> reductions(const Evaluated& evaluated);
  /// The same where ranks reduce the gradients of `first_stages` first.
  std::vector<double> reductions(const Evaluated& evaluated, const std::set<int>& first_stages);
  void enlarge_buckets(Evaluated& evaluated, double worth);
  void simulate_step(Evaluated& evaluated);
  /// Returns the times of a candidate's messages; its computations have none.
  Costs link_costs(const Evaluated& evaluated);
  void simulate_late(Evaluated& evaluated);
  void simulate_pipeline(Evaluated& evaluated);
  void simulate_buckets(Evaluated& evaluated);

  const AdviceRequest& request_;
  std::map<std::pair<std::int64_t, int>, ModelCosts> costs_;         // by samples and tensor-parallel ranks
  std::map<std::pair<std::int64_t, int>, std::string> costs_error_;  // where there are none
  MeshLinks links_;
  std::map<Sizes, Schedule> tables_;
  std::map<std::tuple<Sizes, std::int64_t, int, bool>, Split> splits_;  // of equal time
};

}  // namespace stagecoach
