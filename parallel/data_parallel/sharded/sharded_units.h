#pragma once
/// @file
/// A model as units: layers that compute together, and the flat parameters that they need.
///
/// Most units have one flat tensor. Their frozen parameters have another, which is gathered but never reduced. A tied
/// parameter has one of its own, too, which is not of one unit: it is gathered for each that uses it, and the gradients
/// of each use are summed by themselves, as one device does (nn/tied_weights.h).

#include <memory>
#include <string>
#include <vector>

#include "nn/sequential.h"
#include "parallel/data_parallel/sharded/flat_parameters.h"

namespace stagecoach {

struct ShardedUnit {
  std::shared_ptr<Sequential> layers;
  std::vector<FlatParameters*> needs = {};
  std::vector<FlatGradients*> gradients = {};  ///< those that are complete when the unit's backward has run
};

struct ShardedUnits {
  std::vector<ShardedUnit> units = {};
  std::vector<std::unique_ptr<FlatParameters>> flats = {};  ///< in the order of the units
  std::vector<std::string> trained = {};  ///< names of the trained parameters in the model's order, without copies
  int first_trained = 0;                  ///< the first unit with such; a backward ends there

  int count() const { return static_cast<int>(units.size()); }
};

/// Materializes `model`, which must have no memory, unit by unit as `unit_layers` says, and keeps this rank's
/// shards.
ShardedUnits make_sharded_units(const Sequential& model, const ShardedSettings& settings, const ShardGroups& groups);

}  // namespace stagecoach
