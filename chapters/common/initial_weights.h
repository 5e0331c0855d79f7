#pragma once
/// @file
/// The weights that a training begins with, if they are not drawn: those of another training, or of a model of PyTorch.

#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/module.h"

namespace stagecoach {

/// With --weights, replaces the weights of `mine` by those of the file, without what --weights-except names. `mine` has
/// all layers of the model, or those of a rank, whole or a slice of each; it must have memory. The file must fit the
/// whole model, and this rank reads only what is its own into memory. Throws DataError, which lists what is missing,
/// unexpected or of another shape, and UsageError for a layer that the model does not have.
void load_initial_weights(const TrainingSettings& training, const Dataset& data, Module& mine);

}  // namespace stagecoach
