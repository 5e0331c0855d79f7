#pragma once
/// @file
/// Lab 1, given: samples, some of which have no label.

#include <cstdint>
#include <vector>

#include "core/ops.h"
#include "core/tensor.h"

namespace stagecoach::lab {

/// The label of a sample that has none.
inline constexpr std::int32_t kNoLabel = -1;

struct Samples {
  Tensor images;  ///< [n, …]
  Tensor labels;  ///< int32 [n]; kNoLabel or a class
  std::int64_t count() const { return labels.size(0); }
};

/// Returns the samples that have a label, in their order. There may be none: then count() is 0.
inline Samples labelled(const Samples& all) {
  std::vector<Tensor> images;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < all.count(); ++i) {
    const std::int32_t label = all.labels.data<std::int32_t>()[i];
    if (label != kNoLabel) {
      images.push_back(all.images.narrow(i, 1));
      labels.push_back(label);
    }
  }
  const auto count = static_cast<std::int64_t>(labels.size());
  return {images.empty() ? all.images.narrow(0, 0) : cat(images), Tensor::from(labels, {count})};
}

}  // namespace stagecoach::lab
