#pragma once
/// @file
/// PNG and JPEG files to planes of bytes. stb_image does the work.

#include <cstdint>
#include <span>
#include <string>

#include "datasets/resize.h"

namespace stagecoach {

/// Decodes the PNG or JPEG file `bytes` to `target`, [3, size.height, size.width]. Grey becomes equal planes, alpha is
/// dropped, another size is resized (and stretched to fit). Throws DataError that names `name` and says what is wrong.
/// Any thread may call it.
void decode_picture(std::span<const std::uint8_t> bytes, const std::string& name, std::uint8_t* target,
                    PictureSize size);

}  // namespace stagecoach
