#pragma once
/// @file
/// Pictures as files, a folder a class: `FOLDER/train/CLASS/` and `FOLDER/test/CLASS/` with png, jpg or jpeg files

#include <filesystem>

#include "datasets/dataset.h"

namespace stagecoach {

/// Decodes all pictures of `folder` to 32 x 32 RGB. Labels follow the sorted names of the classes in train/, and the
/// pictures of a class their sorted file names; capitals in ".JPG" are fine, other files and hidden ones are ignored.
/// Throws DataError when a level is missing, a class has no pictures or is in test/ only, or a picture is broken.
TrainTest load_image_folder(const std::filesystem::path& folder);

}  // namespace stagecoach
