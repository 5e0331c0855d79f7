#pragma once
/// @file
/// The roles of the ranks in a training on shared batches. They are decided once, before the ranks start.

#include <optional>
#include <string>
#include <vector>

#include "chapters/common/plan.h"
#include "datasets/shares.h"
#include "parallel/data_parallel/step_timeline.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/rank_role.h"

namespace stagecoach {

struct Topology {
  World world = {};
  MeshSizes mesh = {};
  std::vector<std::string> notes = {};  ///< about the order of a pipeline's actions
  RankRole role = {};                   ///< of the ranks of a pipeline, or of a replica
  std::optional<Plan> pipeline = {};    ///< the plan of each pipeline, if there are any

  /// The ranks of one pipeline have consecutive numbers.
  static constexpr RankOrder kRankOrder{{MeshDirection::tensor, MeshDirection::pipeline, MeshDirection::data}};

  /// Returns which part of each batch `rank` trains on.
  Shard shard_of(int rank) const { return {rank / mesh.pipeline, mesh.data}; }
};

/// Returns the topology for --ranks, --mesh and the pipeline's flags.
Topology make_topology(const Settings& settings, const Dataset& data);

/// Returns which part of the training state rank `rank` has. A replica has the layers of a rank of the first pipeline;
/// beside a parameter server, which is rank 0, the others have nothing to save.
RankRole role_of(const Settings& settings, const Topology& topology, int rank);

/// Returns the model of a step on `topology`, with these parameters in the order of costs.arrivals.
StepModel step_of(const Settings& settings, const Topology& topology, const NamedTensors& parameters,
                  const StepCosts& costs);

}  // namespace stagecoach
