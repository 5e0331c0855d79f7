#pragma once
/// @file
/// Pictures at another size.

#include <cstdint>

namespace stagecoach {

/// Rows and columns of a picture.
struct PictureSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool operator==(const PictureSize&) const = default;
};

/// Resizes `source` [3, from.height, from.width] to `target` [3, to.height, to.width] with stb_image_resize: bilinear,
/// and for smaller pictures the filter widens so that every pixel counts (a triangle filter, edges repeated). Throws
/// Error for empty sizes.
void resize_picture(const std::uint8_t* source, PictureSize from, std::uint8_t* target, PictureSize to);

}  // namespace stagecoach
