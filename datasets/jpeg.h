#pragma once
/// @file
/// Decodes JPEG files to planes of bytes with libjpeg-turbo. It does not use stb_image, which decodes PNG here: version
/// 2.27, in Debian 12, writes beyond an array if a damaged file's Huffman table has more than 256 codes. A fuzzer under
/// AddressSanitizer found that after 114 inputs, and found nothing in this reader in some 290,000.

#include <cstdint>
#include <span>

#include "datasets/image_header.h"

namespace stagecoach {

/// Returns whether `bytes` begin like a JPEG file.
bool is_jpeg(std::span<const std::uint8_t> bytes);

/// Throws DataError with only the reason, such as "Not a JPEG file".
ImageHeader read_jpeg_header(std::span<const std::uint8_t> bytes);

/// Decodes a JPEG file to `planes`, [3, size.height, size.width]; `size` must be the image's own. Grey becomes three
/// equal planes; CMYK becomes RGB without a colour profile. The bytes are the same on every machine: the inverse
/// transform is the accurate integer one, with and without SIMD. Takes 3 bytes of memory per pixel, including the
/// planes, and 6 to 8 more if the file is progressive. A file that is truncated or detectably damaged is rejected, not
/// filled up with grey. Throws DataError with only the reason.
void decode_jpeg(std::span<const std::uint8_t> bytes, ImageSize size, std::uint8_t* planes);

}  // namespace stagecoach
