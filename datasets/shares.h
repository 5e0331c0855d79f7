#pragma once
/// @file
/// The distribution of samples over ranks and over micro-batches.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// The part of each batch that a rank trains on: part `index` of `of` parts.
struct Shard {
  int index = 0;
  int of = 1;
};

/// A range of consecutive samples.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Returns part `part` of `total` samples that are divided into `parts` parts as evenly as possible; where sizes
/// differ, the earlier parts have one sample more. With fewer samples than parts, the last parts are empty.
inline Share share_of(std::int64_t total, std::int64_t part, std::int64_t parts) {
  const std::int64_t larger = total % parts;
  return {part * (total / parts) + std::min(part, larger), total / parts + (part < larger ? 1 : 0)};
}

/// Returns the sizes of `count` micro-batches of `total` images. With fewer than `count` images, each image is a
/// micro-batch; with no images there is one empty micro-batch. With `groups`, which must divide `count`, the images are
/// first divided into as many shares, as over ranks, and each of these into its micro-batches.
inline std::vector<std::int64_t> micro_batch_sizes(std::int64_t total, std::int64_t count, std::int64_t groups = 1) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t group = 0; group < std::clamp<std::int64_t>(total, 1, groups); ++group) {
    const std::int64_t images = share_of(total, group, groups).count;
    const std::int64_t parts = std::clamp<std::int64_t>(images, 1, count / groups);
    for (std::int64_t i = 0; i < parts; ++i) {
      sizes.push_back(share_of(images, i, parts).count);
    }
  }
  return sizes;
}

/// Splits `batch` [N, …] into micro-batches with the sizes of micro_batch_sizes, without a copy.
inline std::vector<Tensor> micro_batches(const Tensor& batch, std::int64_t count, std::int64_t groups = 1) {
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t size : micro_batch_sizes(batch.size(0), count, groups)) {
    parts.push_back(batch.narrow(start, size));
    start += size;
  }
  return parts;
}

}  // namespace stagecoach
