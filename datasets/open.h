#pragma once
/// @file
/// Opens the data that a user names with --data.

#include <string>

#include "datasets/image_folder.h"
#include "datasets/text.h"

namespace stagecoach {

/// "generated" makes the generated set in memory, and "text:book" or "text:FILE" is text, read as `text` says; anything
/// else is a folder with CIFAR-10 in the binary layout, with arrays (datasets/array_folder.h) or with images
/// (`train/CLASS/…`, `test/CLASS/…`), which are read as `images` says. Throws DataError if it is none of them.
TrainTest open_dataset(const std::string& where, const ImageFolderSettings& images = {}, const TextSettings& text = {});

}  // namespace stagecoach
