#pragma once
/// @file
/// Data that needs no download: images of 32 x 32 pixels with ten shapes in random colours, positions and sizes. Colour
/// is independent of the class, so a model has to learn the shapes; a small ConvNet does so within a few epochs.

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"

namespace stagecoach {

inline constexpr std::int64_t kMaxGenerated = 1'000'000;  ///< images per split; 3 GB

struct GeneratedSettings {
  std::int64_t train = 10000;  ///< images to train with
  std::int64_t test = 2000;    ///< images to test with
  std::uint64_t seed = 0;
};

/// Generates a dataset. Image i of a split depends only on (seed, split, i), so a larger set begins with the smaller
/// one. Every ten consecutive images contain each class once. Throws UsageError unless both splits have 1 … 1,000,000
/// images.
TrainTest generate(const GeneratedSettings& settings = {});

/// Returns the same data sets without elements, as tensors on the device `meta`: for plans.
TrainTest outline_of(const GeneratedSettings& settings);

/// Writes the set in CIFAR-10's layout (data_batch_1.bin, test_batch.bin, batches.meta.txt). Creates the folder if
/// needed. Throws DataError if that fails, or if the folder contains other images, which would be lost or mixed up with
/// these.
void write_generated(const std::filesystem::path& folder, const GeneratedSettings& settings = {});

}  // namespace stagecoach
