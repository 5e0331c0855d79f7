#pragma once
/// @file
/// JPEG files to planes of bytes. libjpeg-turbo decodes them, not stb_image, which decodes PNG here: the stb of Debian
/// 12 (version 2.27) writes beyond an array when a damaged file's Huffman table counts more than 256 codes. A fuzzer
/// under AddressSanitizer needed 114 inputs to find that, and finds nothing in this reader in some 290,000.

#include <cstdint>
#include <span>

#include "datasets/resize.h"

namespace stagecoach {

/// Whether `bytes` begin as a JPEG file does.
bool is_jpeg(std::span<const std::uint8_t> bytes);

/// The size that the header tells. Throws DataError with the reason alone, such as "Not a JPEG file".
ImageSize read_jpeg_size(std::span<const std::uint8_t> bytes);

/// Decodes a JPEG file to `planes`, [3, size.height, size.width]; `size` is its own. Grey becomes equal planes, CMYK
/// becomes RGB without a colour profile. The bytes are the same on every machine: the inverse transform is the accurate
/// one in whole numbers, with and without SIMD. With the planes it takes 3 bytes of memory per pixel, and 6 to 8 more
/// if the file is progressive. A file that is cut off or damaged so that it shows is refused, not filled up with grey.
/// Throws DataError with the reason alone.
void decode_jpeg(std::span<const std::uint8_t> bytes, ImageSize size, std::uint8_t* planes);

}  // namespace stagecoach
