#pragma once
/// @file
/// Decodes PNG files to planes of bytes with stb_image.
///
/// stb trusts files in three ways that the code here guards against: it verifies no checksums; it lets the compressed
/// data unpack to gigabytes, whatever size the header declares; and it copies from a null pointer if the first data
/// chunk is empty.

#include <cstdint>
#include <span>

#include "datasets/background.h"
#include "datasets/image_header.h"

namespace stagecoach {

/// Returns whether `bytes` begin like a PNG file.
bool is_png(std::span<const std::uint8_t> bytes);

/// Checks all chunks. Throws DataError with only the reason, such as "the file ends too early", if one is truncated,
/// damaged, or out of order.
ImageHeader read_png_header(std::span<const std::uint8_t> bytes);

/// Decodes a file that read_png_header accepted to `planes`, [3, height, width] of that header. Grey becomes three
/// equal planes, 16 bits become 8, and transparent pixels are laid on `background`. Including the planes, takes 9 bytes
/// of memory per pixel for RGB of 8 bits, up to 24 for other formats (16 bits, four channels, interlaced), and twice
/// the file's size. Throws DataError with only the reason.
void decode_png(std::span<const std::uint8_t> bytes, const ImageHeader& header, BackgroundColor background,
                std::uint8_t* planes);

}  // namespace stagecoach
