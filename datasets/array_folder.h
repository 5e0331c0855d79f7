#pragma once
/// @file
/// Data that need not fit into memory: a folder with train_inputs.npy, train_targets.npy, test_inputs.npy and
/// test_targets.npy (datasets/npy.h), of which a loader reads the samples of a batch when it makes it. Row i of the
/// inputs and row i of the targets are sample i. Images are uint8 [N, 3, H, W], and labels int32 [N]; their classes are
/// named in classes.txt, one per line, or by their numbers.

#include <filesystem>

#include "datasets/dataset.h"

namespace stagecoach {

/// Returns whether `folder` has a train_inputs.npy.
bool is_array_folder(const std::filesystem::path& folder);

/// Opens the arrays of `folder`. Throws DataError if one is missing or damaged, if inputs and targets are not as many,
/// if training and test differ in shape or type, or for a label outside the classes. A loader of these data throws
/// DataError if a file changes its size while it is in use.
TrainTest load_array_folder(const std::filesystem::path& folder);

/// Writes `data`, whose samples may be of any source, as arrays, and classes.txt if there are classes. Creates the
/// folder if needed. Throws DataError if that fails.
void write_array_folder(const std::filesystem::path& folder, const TrainTest& data);

}  // namespace stagecoach
