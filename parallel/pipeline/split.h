#pragma once
/// @file
/// Splits a model's layers into stages.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/sequential.h"
#include "parallel/schedule/placement.h"

namespace stagecoach {

/// Layers per stage, from the first: {5, 4, 3}.
using Split = std::vector<int>;
/// The limit for the layers of a stage, for the stages, and for replicas, so that their sums fit in an int.
inline constexpr int kMaxSplit = 1 << 15;

/// Splits as evenly as the number of layers allows; where stages differ, the earlier ones have one layer more.
Split split_by_layers(int layers, int stages);
/// Returns the split whose slowest rank is the fastest. A rank is as slow as the sum of its stages, and a stage as the
/// sum of its layers' `costs`, divided by its replicas. `costs` has one cost of at least 0 per layer.
/// - Where every rank has one stage, it returns the best split, and among equal ones the first stages are longest.
///   Source: the linear partition problem (Skiena, "The algorithm design manual", section 10.7).
/// - Where ranks have several stages, it returns what balance_ranks (rank_balance.h) makes of that split.
///
/// Throws UsageError for more stages than layers. See fastest_split.h for splits that make a step fast.
Split split_by_costs(const std::vector<double>& costs, const Placement& placement);
/// Returns whether no rank has several stages.
bool has_one_stage_per_rank(const Placement& placement);
/// Returns the number of trainable elements of each layer, as costs for split_by_costs.
std::vector<double> parameter_costs(const Sequential& model);

/// Parses "5,4,3". Throws UsageError for anything but a list of positive numbers.
Split split_from_text(const std::string& text);
/// Parses numbers of micro-batches to try one after another, such as "1,2,4,8". Throws likewise.
std::vector<int> splits_from_text(const std::string& text);
/// Parses the number of ranks of each stage, such as "2,1,1". Throws likewise.
std::vector<int> replicas_from_text(const std::string& text);

/// Describes the stages in order: "1,3,8 layers on ranks 0,1,0". Replicas are written as a range of ranks: "5,7 layers
/// on ranks 0-1,2".
std::string stages_text(const Split& split, const Placement& placement);

/// Returns the input shape of each stage for one sample, [1, …]; the first is `sample`. Allocates and computes nothing.
/// Throws Error, naming the layer, if a layer does not accept the output of the layer before it.
std::vector<Shape> shapes_entering(const Sequential& model, const Split& split, const Shape& sample);

/// Returns the stages of `model`, each a slice that shares its layers. Throws UsageError, naming the sums, unless every
/// layer is in exactly one stage and every stage has one.
std::vector<std::shared_ptr<Sequential>> stages_of(const Sequential& model, const Split& split);

/// Returns the layers of the stages of one rank, by number, as one module: the rank's optimizer updates it.
std::shared_ptr<Sequential> joined(const std::map<int, std::shared_ptr<Sequential>>& stages);

}  // namespace stagecoach
