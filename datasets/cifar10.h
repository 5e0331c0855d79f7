#pragma once
/// @file
/// CIFAR-10 in its official binary layout: data_batch_1.bin … data_batch_5.bin, test_batch.bin and, optionally,
/// batches.meta.txt with one class name per line. A batch is a sequence of records of 3073 bytes: the label (0 … 9),
/// then the red, green and blue planes of 32 x 32 pixels each.
/// Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009;
/// https://www.cs.toronto.edu/~kriz/cifar.html.

#include <filesystem>

#include "datasets/dataset.h"

namespace stagecoach {

/// Returns whether `folder` looks like CIFAR-10: it has a data_batch_N.bin, test_batch.bin or cifar-10-batches-bin.
bool is_cifar10(const std::filesystem::path& folder);

/// Reads `folder`, or the cifar-10-batches-bin in it: all data_batch_N.bin in numeric order, from 1 on (one is enough),
/// and test_batch.bin. Throws DataError, with the file and the byte, if something is missing, damaged or unreadable: a
/// number between others, a batch that is shorter than another or equal to it, or with five batches of 10,000 images,
/// as CIFAR-10 has them, a test batch that has fewer. So do test images that are all training images.
TrainTest load_cifar10(const std::filesystem::path& folder);

/// Writes one batch file: images uint8 [N, 3, 32, 32], labels int32 [N] in 0 … 9, N at least 1, on the CPU. The file is
/// written whole or not at all. Throws DataError if it cannot be written.
void write_cifar10_batch(const std::filesystem::path& path, const Tensor& images, const Tensor& labels);

}  // namespace stagecoach
