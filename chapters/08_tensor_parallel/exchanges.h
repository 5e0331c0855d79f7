#pragma once
/// @file
/// What the ranks of a tensor-parallel group exchange in a step, before a run.

#include <optional>
#include <string>
#include <vector>

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// The exchanges in each layer of a model, for one micro-batch: [layers].
using Exchanges = std::vector<std::vector<Exchange>>;

/// Returns the exchanges for the largest micro-batch that --mesh and --microbatches give.
Exchanges exchanges_of(const Settings& settings, const Dataset& data);

/// Returns the link of the exchanges; with several nodes, that of the slowest group.
const Link& tensor_link(const Settings& settings);

/// Returns a warning, with what it costs, if a tensor-parallel group has ranks on several nodes: a sentence without a
/// full stop.
std::optional<std::string> warning_of_slow_exchanges(const Settings& settings, const Dataset& data);

}  // namespace stagecoach
