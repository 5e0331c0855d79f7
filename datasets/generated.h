#pragma once
/// @file
/// Data that needs no download: ten shapes in random colours, places and sizes, 32 x 32 pixels. Colour says nothing
/// about the class, so a model has to learn the shapes; a small ConvNet does within a few epochs.

#include <cstdint>
#include <filesystem>

#include "datasets/dataset.h"

namespace stagecoach {

inline constexpr std::int64_t kMaxGenerated = 1'000'000;  ///< pictures of a split; 3 GB

struct GeneratedSettings {
  std::int64_t train = 10000;  ///< pictures to train with
  std::int64_t test = 2000;    ///< pictures to test with
  std::uint64_t seed = 0;
};

/// Picture i of a split depends on (seed, split, i) alone: a larger set begins with the smaller one. Each ten
/// pictures in a row have every class once. Throws UsageError unless both splits have 1 … 1,000,000 pictures.
TrainTest generate(const GeneratedSettings& settings = {});

/// Writes the set in CIFAR-10's layout (data_batch_1.bin, test_batch.bin, batches.meta.txt); makes the folder if need
/// be. Throws DataError when that fails, or when the folder holds other pictures, which would be lost or mixed up with
/// these.
void write_generated(const std::filesystem::path& folder, const GeneratedSettings& settings = {});

}  // namespace stagecoach
