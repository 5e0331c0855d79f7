#pragma once
/// @file
/// Small random changes to training images, so that a model sees a slightly different version of each in every epoch.

#include <array>
#include <cstdint>

#include "datasets/resize.h"

namespace stagecoach {

/// Where an augmented image comes from: row y is row y + down of the image, and column x is column x + right or, if it
/// is mirrored, the one that x is in the mirror.
struct Crop {
  std::int64_t down = 0;
  std::int64_t right = 0;
  bool mirrored = false;
};

/// Returns a random crop of the padded image, and whether it is mirrored. `random` determines the row, the column and
/// the mirroring.
Crop crop_of(ImageSize size, const std::array<std::uint32_t, 4>& random);

/// Writes `source` [3, H, W] to `target` [3, H, W], padded by black pixels on each side (an eighth of its size: 4 of
/// 32), cropped to its size at a random position, and possibly mirrored left to right: crop_of(`size`, `random`).
/// Source: He et al., "Deep residual learning for image recognition", 2015, section 4.2.
void augment_image(const std::uint8_t* source, std::uint8_t* target, ImageSize size,
                   const std::array<std::uint32_t, 4>& random);

}  // namespace stagecoach
