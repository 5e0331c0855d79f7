#pragma once
/// @file
/// A batch that is split into micro-batches.

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "datasets/shares.h"

namespace stagecoach {

/// One batch, or a rank's shard of it, as one rank sees it.
struct MicroBatches {
  std::vector<std::int64_t> sizes = {};  ///< images of each micro-batch
  std::int64_t global_size = 0;          ///< images of the whole batch
  std::vector<Tensor> images = {};       ///< uint8 [n, 3, H, W] each, on ranks that hold the first stage
  std::vector<Tensor> labels = {};       ///< int32 [n] each, on ranks that hold the last stage
};

}  // namespace stagecoach
