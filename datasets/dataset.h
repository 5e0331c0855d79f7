#pragma once
/// @file
/// Labelled images in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Copying a Dataset copies handles: the images exist once.
struct Dataset {
  Tensor images;                     ///< uint8 [N, 3, H, W]: the red, green and blue planes of each image
  Tensor labels;                     ///< int32 [N]: indices into `classes`
  std::vector<std::string> classes;  ///< the name of each label

  /// Returns N; 0 while the tensors are undefined.
  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

struct TrainTest {
  Dataset train;
  Dataset test;
};

/// Returns a dataset of `size` uninitialised images, `side` pixels high and wide.
Dataset make_dataset(std::int64_t size, std::int64_t side, std::vector<std::string> classes);

}  // namespace stagecoach
