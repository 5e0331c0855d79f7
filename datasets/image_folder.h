#pragma once
/// @file
/// Images as files, one folder per class: `FOLDER/train/CLASS/` and `FOLDER/test/CLASS/` with png, jpg or jpeg files

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"
#include "datasets/image.h"

namespace stagecoach {

/// Decodes all images of `folder` to 32 x 32 RGB. Labels follow the sorted names of the classes in train/, and the
/// images of a class their sorted file names; capitals in ".JPG" are fine, other files and hidden ones are ignored.
/// Throws DataError when a level is missing, a class has no images or is in test/ only, or an image is broken or has
/// more than `max_pixels` pixels; and when a link in train/ or test/, or one that is named as an image is, leads
/// nowhere.
///
/// The images are decoded on all cores. However many these are, at once they hold files of at most 8 bytes and
/// decoders of at most `max_pixels` pixels: for the default some 0.6 GB for images of 8 bits per channel, and 2 GB
/// for the most wasteful PNG. Small images need next to nothing.
TrainTest load_image_folder(const std::filesystem::path& folder, std::int64_t max_pixels = kMaxPixels);

}  // namespace stagecoach
