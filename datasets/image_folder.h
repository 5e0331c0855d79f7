#pragma once
/// @file
/// Pictures as files, a folder a class: `FOLDER/train/CLASS/` and `FOLDER/test/CLASS/` with png, jpg or jpeg files

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"
#include "datasets/picture.h"

namespace stagecoach {

/// Decodes all pictures of `folder` to 32 x 32 RGB. Labels follow the sorted names of the classes in train/, and the
/// pictures of a class their sorted file names; capitals in ".JPG" are fine, other files and hidden ones are ignored.
/// Throws DataError when a level is missing, a class has no pictures or is in test/ only, or a picture is broken or has
/// more than `max_pixels` pixels; and when a link in train/ or test/, or one that is named as a picture is, leads
/// nowhere.
///
/// The pictures are decoded on all cores. However many these are, at once they hold files of at most 8 bytes and
/// decoders of at most `max_pixels` pixels: for the default some 0.6 GB for pictures of 8 bits per channel, and 2 GB
/// for the most wasteful PNG. Small pictures need next to nothing.
TrainTest load_image_folder(const std::filesystem::path& folder, std::int64_t max_pixels = kMaxPixels);

}  // namespace stagecoach
