#pragma once
/// @file
/// Images as files, one folder per class: `FOLDER/train/CLASS/` and `FOLDER/test/CLASS/` with png, jpg or jpeg files.

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"
#include "datasets/image.h"

namespace stagecoach {

/// Decodes all images of `folder` to 32 x 32 RGB. Labels are numbered by the sorted class names in train/; the images
/// of a class are sorted by file name. Extensions may be in capitals (".JPG"); other files and hidden files are
/// ignored. Throws DataError if a folder is missing, a class has no images or is only in test/, an image is damaged or
/// has more than `max_pixels` pixels, or a link in train/ or test/, or one named like an image, is dangling.
///
/// Images are decoded on all cores. Together the cores hold at most `max_pixels` pixels in decoders, and 8 `max_pixels`
/// bytes (plus 1 MiB) of files: by default about 0.6 GB for images of 8 bits per channel, and 2 GB for the most
/// wasteful PNG. Small images need very little.
TrainTest load_image_folder(const std::filesystem::path& folder, std::int64_t max_pixels = kMaxPixels);

}  // namespace stagecoach
