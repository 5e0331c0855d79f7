#pragma once
/// @file
/// What a model is trained on: inputs, such as images, and the targets that it should answer with, such as labels.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "datasets/sample_source.h"

namespace stagecoach {

/// Samples in memory, or in a source that reads them when they are needed. Copying a Dataset copies handles: the
/// samples exist once.
struct Dataset {
  Tensor inputs;   ///< [N, …], such as images uint8 [N, 3, H, W]: the red, green and blue planes of each
  Tensor targets;  ///< [N, …], such as labels int32 [N]: indices into `classes`
  std::vector<std::string> classes = {};                  ///< the name of each label; empty without labels
  std::shared_ptr<const SampleSource> samples = nullptr;  ///< in place of the tensors, which are then undefined

  /// Returns N; 0 while there are neither samples nor tensors.
  std::int64_t size() const { return samples ? samples->size() : targets.defined() ? targets.size(0) : 0; }
  /// Returns whether the samples are images, uint8 [3, H, W]; false without samples.
  bool has_images() const;
};

/// What was read to make a data set, and what was not.
struct DataSource {
  std::int64_t files = 0;  ///< that contain its images; 0: they were generated
  /// The number of files that are no part of it, by the reason, such as ".webp (images, but neither PNG nor JPEG)".
  std::map<std::string, std::int64_t> left_out = {};
  std::vector<std::string> notes = {};  ///< one line each: what is odd about the images, as sanity_check finds it
};

struct TrainTest {
  Dataset train;
  Dataset test;
  DataSource source = {};
};

/// Returns "Data: 10000 training and 2000 test images of 10 classes, from 2 files"; samples that are no images are
/// called samples.
std::string describe(const TrainTest& data);
/// Returns "Left out: 3 .txt, 1 hidden", the most frequent reasons first; empty if nothing was.
std::string describe_left_out(const DataSource& source);

/// Returns a dataset of `size` uninitialised images, `side` pixels high and wide.
Dataset make_dataset(std::int64_t size, std::int64_t side, std::vector<std::string> classes, Device device = {});

}  // namespace stagecoach
