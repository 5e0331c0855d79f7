#pragma once
/// @file
/// What one candidate takes: the time of its step, its memory and its messages, by the simulation that the chapters'
/// plans use.

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/advise/candidate.h"
#include "parallel/advise/rank_memory.h"
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
  double link_bytes = 0;                ///< over the busiest link in one direction, in a step

  /// Returns the memory of the rank that needs most.
  const RankMemory& worst() const;
};

/// Evaluates candidates of one request, and keeps what they have in common: costs, tables, splits and links.
class Evaluator {
 public:
  /// `request` must outlive it.
  explicit Evaluator(const AdviceRequest& request) : request_(request) {}

  /// Returns the costs of the candidate's layers. Throws UsageError if there are none.
  const ModelCosts& costs(const Candidate& candidate);
  /// Returns the memory of a candidate, with its split. Throws UsageError, which says why, for one that is not
  /// possible: more stages than layers, or sizes that the schedule does not accept.
  Evaluated memory(const Candidate& candidate);
  /// Adds the times of the step.
  void add_times(Evaluated& evaluated);
  /// Moves layers from one stage of a pipeline to another as long as that makes the step faster and the limit of memory
  /// allows it: the splits of candidates are found from sums of their costs, these by simulated steps.
  void move_layers(Evaluated& evaluated);

 private:
  using Sizes = std::tuple<std::string, int, int, int>;  // of a table: schedule, ranks, micro-batches, chunks

  const Schedule& table(const Candidate& candidate);
  /// Returns the link between two ranks of a pipeline, that of the slowest one.
  Link border(const MeshSizes& mesh, int from, int to);
  Split split_of(const Candidate& candidate, const Schedule& schedule);
  Evaluated memory(const Candidate& candidate, Split split);
  Link at_speed(const Link& link) const { return {link.latency, request_.link_speed * link.bytes_per_second}; }
  const RankGroups& groups(const MeshSizes& mesh, MeshDirection direction);
  /// Returns the slowest link of the groups of `direction` among ranks that hold the same stages.
  Link group_link(const MeshSizes& mesh, MeshDirection direction, int pipeline_rank);
  std::vector<Link> group_links(const Evaluated& evaluated, MeshDirection direction);
  void simulate_pipeline(Evaluated& evaluated);
  void simulate_buckets(Evaluated& evaluated);

  const AdviceRequest& request_;
  std::map<std::pair<std::int64_t, int>, ModelCosts> costs_;         // by samples and tensor-parallel ranks
  std::map<std::pair<std::int64_t, int>, std::string> costs_error_;  // where there are none
  std::map<Sizes, Schedule> tables_;
  std::map<std::tuple<Sizes, std::int64_t, int, bool>, Split> splits_;  // of equal time
  std::map<std::tuple<int, int, int, MeshDirection>, RankGroups> groups_;
  std::map<std::tuple<int, int, int, MeshDirection, int>, Link> group_links_;
  std::map<std::tuple<int, int, int, int, int>, Link> borders_;  // by mesh, from one rank of a pipeline to another
};

}  // namespace stagecoach
