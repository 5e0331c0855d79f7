#pragma once
/// @file
/// PNG and JPEG files to planes of bytes. stb_image decodes PNG, libjpeg-turbo JPEG.

#include <cstdint>
#include <span>
#include <string>

#include "datasets/resize.h"

namespace stagecoach {

/// How many pixels an image may have unless the user allows more: 64 megapixels. A file of some kilobytes can tell of
/// as many pixels as fill the memory.
inline constexpr std::int64_t kMaxPixels = 64'000'000;

/// The size that the header of the PNG or JPEG file `bytes` tells; no pixel is decoded. Throws DataError that names
/// `name` when it is neither, is damaged, or has more than `max_pixels` pixels.
ImageSize read_image_size(std::span<const std::uint8_t> bytes, const std::string& name,
                          std::int64_t max_pixels = kMaxPixels);

/// Decodes the PNG or JPEG file `bytes` to `target`, [3, size.height, size.width]. Grey becomes equal planes, alpha is
/// dropped, another size is resized (and stretched to fit). Throws DataError that names `name` and says what is wrong;
/// an image of more than `max_pixels` pixels is refused before it is decoded. Any thread may call it.
void decode_image(std::span<const std::uint8_t> bytes, const std::string& name, std::uint8_t* target, ImageSize size,
                  std::int64_t max_pixels = kMaxPixels);

}  // namespace stagecoach
