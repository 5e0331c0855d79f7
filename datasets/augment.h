#pragma once
/// @file
/// Small random changes of training images, so that a model sees each a little differently in every epoch.

#include <array>
#include <cstdint>

#include "datasets/resize.h"

namespace stagecoach {

/// Writes `source` [3, H, W] to `target` [3, H, W], padded by 4 black pixels on each side and cropped back at a random
/// position, then mirrored left to right or not. `random` decides: the row, the column and the side.
/// Source: He et al., "Deep residual learning for image recognition", 2015, section 4.2.
void augment_image(const std::uint8_t* source, std::uint8_t* target, ImageSize size,
                   const std::array<std::uint32_t, 4>& random);

}  // namespace stagecoach
