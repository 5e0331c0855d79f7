#pragma once
/// @file
/// How a camera was held. Cameras store pixels as the sensor has them, and a tag that says how to turn them.
/// Source: CIPA DC-008 (Exif 2.32), section 4.6.4, tag Orientation.

#include <cstdint>
#include <span>

#include "datasets/resize.h"

namespace stagecoach {

/// Returns the orientation in the metadata `tiff` (of a JPEG's Exif marker, after its name, or of a PNG's eXIf chunk):
/// 1 … 8, and 1, which is upright, if it has none or is damaged.
int exif_orientation(std::span<const std::uint8_t> tiff);

/// Returns the size of an image of `stored` pixels when it is upright.
ImageSize upright_size(ImageSize stored, int orientation);

/// Turns and mirrors the pixels `source` [3, stored.height, stored.width] to `target`, [3, …] of upright_size().
void turn_upright(const std::uint8_t* source, ImageSize stored, int orientation, std::uint8_t* target);

}  // namespace stagecoach
