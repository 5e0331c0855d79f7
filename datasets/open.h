#pragma once
/// @file
/// Opens the data that a user names with --data.

#include <cstdint>
#include <string>

#include "datasets/dataset.h"
#include "datasets/image.h"

namespace stagecoach {

/// "generated" makes the generated set in memory; anything else is a folder with CIFAR-10 in the binary layout or with
/// images (`train/CLASS/…`, `test/CLASS/…`) of at most `max_pixels` pixels. Throws DataError if it is neither.
TrainTest open_dataset(const std::string& where, std::int64_t max_pixels = kMaxPixels);

}  // namespace stagecoach
