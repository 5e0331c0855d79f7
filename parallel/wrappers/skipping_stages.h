#pragma once
/// @file
/// The stages of a model in which values skip layers (Stash and Unstash in nn/named_values.h). Stages pass one tensor
/// on: where a value skips the border between two stages, it travels beside the output, as columns of one tensor.

#include <memory>
#include <vector>

#include "nn/sequential.h"
#include "parallel/pipeline/split.h"

namespace stagecoach {

/// Returns the stages of `model`, which share its layers. A stage whose output is passed on with other values ends with
/// a layer that puts them side by side, [N, all columns], and the next stage begins with one that takes them apart.
/// `sample` is the shape of the model's input for one sample. Throws UsageError as stages_of does, and for a value that
/// is taken but not kept before.
std::vector<std::shared_ptr<Sequential>> skipping_stages(const Sequential& model, const Split& split,
                                                         const Shape& sample);

}  // namespace stagecoach
