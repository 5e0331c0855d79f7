#pragma once
/// @file
/// Several models and their optimizers in one file, for programs without a Run (parallel/training/run.h), which saves
/// one model. The file is replaced at once: whenever the program is killed, all that it has is of one step.

#include <string>
#include <vector>

#include "nn/module.h"
#include "nn/optimizer.h"

namespace stagecoach {

struct TrainedModel {
  std::string name;            ///< in the file, such as "generator"; without dots
  const Module& model;         ///< it must have memory
  const Optimizer& optimizer;  ///< of its parameters
};

/// Writes the weights of all models, "NAME.model.…", and the states of their optimizers, "NAME.optimizer.…", as a
/// safetensors file. An older file stays intact until the new one is on disk. Creates the folder if there is none.
/// Throws DataError if writing fails, and UsageError in the middle of a step (Optimizer::state), and for names that are
/// equal or have dots.
void save_models(const std::string& path, const std::vector<TrainedModel>& models);

/// Restores them, perhaps on other devices. If the file is damaged, or its models or tensors are others, changes
/// nothing and throws DataError.
void load_models(const std::string& path, const std::vector<TrainedModel>& models);

}  // namespace stagecoach
