#pragma once
/// @file
/// Decodes PNG and JPEG files to planes of bytes: PNG with stb_image, JPEG with libjpeg-turbo.

#include <cstdint>
#include <span>
#include <string>

#include "datasets/background.h"
#include "datasets/resize.h"

namespace stagecoach {

/// The most pixels that an image may have unless the user allows more: 64 megapixels. A file of a few kilobytes can
/// declare so many pixels that they fill the memory.
inline constexpr std::int64_t kMaxPixels = 64'000'000;

/// Returns the size of the stored pixels in the PNG or JPEG file `bytes`; decodes none. Throws DataError that names
/// `name` if the file is neither, is damaged, or has more than `max_pixels` pixels.
ImageSize read_image_size(std::span<const std::uint8_t> bytes, const std::string& name,
                          std::int64_t max_pixels = kMaxPixels);

/// Decodes the PNG or JPEG file `bytes` to `target`, [3, size.height, size.width]. Grey becomes three equal planes,
/// transparent pixels are laid on `background`, an image that a camera stored on its side or mirrored is turned
/// upright (exif.h), and one of another size is stretched to fit. Throws DataError that names `name` and says what is
/// wrong; rejects an image of more than `max_pixels` pixels before decoding it. Any thread may call it.
void decode_image(std::span<const std::uint8_t> bytes, const std::string& name, std::uint8_t* target, ImageSize size,
                  std::int64_t max_pixels = kMaxPixels, BackgroundColor background = {});

}  // namespace stagecoach
