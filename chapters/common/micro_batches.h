#pragma once
/// @file
/// A batch that is split into micro-batches.

#include <algorithm>
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

/// Returns the sizes of `count` micro-batches of `total` images. With fewer than `count` images, each image is a
/// micro-batch; with no images there is one empty micro-batch.
inline std::vector<std::int64_t> micro_batch_sizes(std::int64_t total, std::int64_t count) {
  const std::int64_t parts = std::clamp<std::int64_t>(total, 1, count);
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < parts; ++i) {
    sizes.push_back(share_of(total, i, parts).count);
  }
  return sizes;
}

/// Splits `batch` [N, …] into micro-batches with the sizes of micro_batch_sizes, without a copy.
inline std::vector<Tensor> micro_batches(const Tensor& batch, std::int64_t count) {
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : micro_batch_sizes(batch.size(0), count)) {
    parts.push_back(batch.narrow(start, size));
    start += size;
  }
  return parts;
}

}  // namespace stagecoach
