#pragma once
/// @file
/// Images as files, one folder per class: `FOLDER/train/CLASS/` and `FOLDER/test/CLASS/` with PNG and JPEG files.

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"
#include "datasets/image.h"

namespace stagecoach {

struct ImageFolderSettings {
  std::int64_t image_size = 32;          ///< rows and columns to which every image is decoded
  std::int64_t max_pixels = kMaxPixels;  ///< of a file; larger ones are refused
  BackgroundColor background = {};       ///< what transparent pixels are laid on
};

/// Decodes all images of `folder` to RGB: png, jpg, jpeg, jpe and jfif files (".JPG" too) in the folders of the classes
/// and in folders below those. Labels are numbered by the sorted class names in train/; the images of a class are
/// sorted by their paths. Everything else in train/ and test/ is left out, and counted in `source`. Throws DataError if
/// a folder is missing, test/ is train/ or has only its images, a class has no images or is only in test/, an image is
/// damaged or too large, a link in train/ or test/, or one named like an image, is dangling, or the images do not fit
/// into memory.
///
/// Images are decoded on all cores. Together the cores hold at most `max_pixels` pixels in decoders, and 8 `max_pixels`
/// bytes (plus 1 MiB) of files: by default about 0.6 GB for images of 8 bits per channel, and 2 GB for the most
/// wasteful PNG. Small images need very little.
TrainTest load_image_folder(const std::filesystem::path& folder, const ImageFolderSettings& settings = {});

}  // namespace stagecoach
