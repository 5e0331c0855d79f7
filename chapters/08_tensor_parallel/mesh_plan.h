#pragma once
/// @file
/// The plan of a mesh of ranks: that of each of its pipelines, and what the ranks of a tensor-parallel group exchange.

#include <vector>

#include "chapters/common/plan.h"
#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// Returns the plan of each pipeline of the mesh, with the seconds that its collectives take. Its notes say what
/// tensor-parallel groups on several nodes cost.
Plan make_mesh_plan(const Settings& settings, const Dataset& data);

/// What the ranks of a tensor-parallel group exchange in each layer of a model, for one micro-batch: [layers].
using Exchanges = std::vector<std::vector<Exchange>>;

/// Returns the exchanges for a micro-batch of `microbatch` images.
Exchanges exchanges_of(const Settings& settings, const Dataset& data, std::int64_t microbatch);

/// Returns the model with the layers of one rank of a tensor-parallel group, which runs alone.
std::shared_ptr<Sequential> model_of_rank(const Settings& settings, const Dataset& data,
                                          std::shared_ptr<std::vector<Exchange>> exchanges = nullptr);

}  // namespace stagecoach
