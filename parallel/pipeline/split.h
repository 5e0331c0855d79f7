#pragma once
/// @file
/// Which layers of a model make up which stage.

#include <memory>
#include <string>
#include <vector>

#include "nn/sequential.h"
#include "parallel/schedule/placement.h"

namespace stagecoach {

/// Layers per stage, from the first: {5, 4, 3}.
using Split = std::vector<int>;
/// The most layers of a stage, and the most stages, so that their sum fits an int. For replicas likewise.
inline constexpr int kMaxSplit = 1 << 15;

/// As even as the number of layers allows, earlier stages one longer.
Split split_by_layers(int layers, int stages);
/// The stages whose largest sum of `costs` (one per layer) is the least, where that of a stage is shared by its
/// `replicas` (one each, if not given); among such splits the one whose early stages are longest. Source: the linear
/// partition problem (Skiena, "The algorithm design manual", section 10.7).
Split split_by_costs(const std::vector<double>& costs, int stages, const std::vector<int>& replicas = {});
/// Trainable numbers of each layer: costs for split_by_costs.
std::vector<double> parameter_costs(const Sequential& model);

/// "5,4,3". Throws UsageError for anything but a list of positive numbers.
Split split_from_text(const std::string& text);
/// "2,1,1": the ranks of each stage. Throws likewise.
std::vector<int> replicas_from_text(const std::string& text);

/// "1,3,8 layers on ranks 0,1,0": each stage in its order. Replicas are a range of ranks: "5,7 layers on ranks 0-1,2".
std::string stages_text(const Split& split, const Placement& placement);

/// What enters each stage for one sample: [1, …], the first of them `sample`. Nothing is allocated or computed. Throws
/// Error, naming the layer, where one refuses the output of the layers before it.
std::vector<Shape> shapes_entering(const Sequential& model, const Split& split, const Shape& sample);

/// The stages of `model`, each a slice that shares its layers. Throws UsageError, naming the sums, unless every layer
/// is in exactly one stage and every stage has one.
std::vector<std::shared_ptr<Sequential>> stages_of(const Sequential& model, const Split& split);

}  // namespace stagecoach
