#pragma once
/// @file
/// Resizes images.

#include <cstdint>

namespace stagecoach {

/// Rows and columns of an image.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// Resizes `source` [3, from.height, from.width] to `target` [3, to.height, to.width] with stb_image_resize: bilinear,
/// with a wider filter when shrinking so that every pixel counts (a triangle filter; edge pixels are repeated). Throws
/// Error for empty sizes.
void resize_image(const std::uint8_t* source, ImageSize from, std::uint8_t* target, ImageSize to);

}  // namespace stagecoach
