#pragma once
/// @file
/// The distribution of samples over ranks and over micro-batches.

#include <algorithm>
#include <cstdint>

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

}  // namespace stagecoach
