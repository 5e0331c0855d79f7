#pragma once
/// @file
/// How samples are distributed: to ranks, and to micro-batches.

#include <algorithm>
#include <cstdint>

namespace stagecoach {

/// Which part of each batch a rank trains on.
struct Shard {
  int index = 0;
  int of = 1;
};

/// Some samples side by side.
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Part `part` of `total` samples in `parts` shares: as even as can be, the earlier ones larger by one where they
/// differ. Where there are fewer samples than parts the last ones are empty.
inline Share share_of(std::int64_t total, std::int64_t part, std::int64_t parts) {
  const std::int64_t larger = total % parts;
  return {part * (total / parts) + std::min(part, larger), total / parts + (part < larger ? 1 : 0)};
}

}  // namespace stagecoach
