#pragma once
/// @file
/// Labelled images in memory.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Copying a Dataset copies handles: the images exist once.
struct Dataset {
  Tensor images;                     ///< uint8 [N, 3, H, W]: the red, green and blue planes of each image
  Tensor labels;                     ///< int32 [N]: indices into `classes`
  std::vector<std::string> classes;  ///< the name of each label

  /// Returns N; 0 while the tensors are undefined.
  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
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

/// Returns "Data: 10000 training and 2000 test images of 10 classes, from 2 files".
std::string describe(const TrainTest& data);
/// Returns "Left out: 3 .txt, 1 hidden", the most frequent reasons first; empty if nothing was.
std::string describe_left_out(const DataSource& source);

/// Returns a dataset of `size` uninitialised images, `side` pixels high and wide.
Dataset make_dataset(std::int64_t size, std::int64_t side, std::vector<std::string> classes, Device device = {});

}  // namespace stagecoach
