#pragma once
/// @file
/// PNG files to planes of bytes. stb_image decodes them.
///
/// stb trusts a file in three ways that are made good here, before and around it: it verifies no checksums; it lets
/// the compressed data unpack to gigabytes, whatever size the header tells; and it copies from a null pointer when the
/// first chunk of data is empty.

#include <cstdint>
#include <span>

#include "datasets/resize.h"

namespace stagecoach {

/// Whether `bytes` begin as a PNG file does.
bool is_png(std::span<const std::uint8_t> bytes);

/// The size that the header tells. Walks through all chunks, and throws DataError with the reason alone, such as
/// "the file ends too early", when one is cut off, damaged, or out of place.
ImageSize read_png_size(std::span<const std::uint8_t> bytes);

/// Decodes a file that read_png_size accepted to `planes`, [3, size.height, size.width]; `size` is its own. Grey
/// becomes equal planes, alpha is dropped, 16 bits become 8. With the planes it takes 9 bytes of memory per pixel for
/// RGB of 8 bits, up to 24 for others (16 bits, four channels, interlaced), and twice the file. Throws DataError with
/// the reason alone.
void decode_png(std::span<const std::uint8_t> bytes, ImageSize size, std::uint8_t* planes);

}  // namespace stagecoach
