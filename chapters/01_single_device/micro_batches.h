#pragma once
/// @file
/// A batch in parts.

#include <algorithm>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

struct MicroBatch {
  Tensor images;  ///< uint8 [n, 3, H, W], a view of the batch
  Tensor labels;  ///< int32 [n], a view of the batch
};

/// Cuts a batch into at most `count` parts of ceil(N / count) pictures; the last one may be smaller. No copy.
inline std::vector<MicroBatch> micro_batches(const Tensor& images, const Tensor& labels, std::int64_t count) {
  const std::int64_t total = images.size(0);
  const std::int64_t largest = (total + count - 1) / count;
  std::vector<MicroBatch> parts;
  for (std::int64_t start = 0; start < total; start += largest) {
    const std::int64_t length = std::min(largest, total - start);
    parts.push_back({images.narrow(start, length), labels.narrow(start, length)});
  }
  return parts;
}

}  // namespace stagecoach
