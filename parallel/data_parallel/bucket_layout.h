#pragma once
/// @file
/// Which gradients share a bucket.

#include <cstddef>
#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Bytes at which a bucket is closed. The first one is small: it is full early, and the link has work early.
struct BucketCaps {
  std::size_t first = std::size_t{1} << 20;
  std::size_t rest = std::size_t{25} << 20;
};

/// Places in `parameters`, bucket by bucket.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// Deals `parameters` out in the order of `order`, which holds each place once. A bucket is closed by the tensor that
/// reaches the cap, so it may be larger than that, and holds one type of elements only.
/// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020, section 3.2.
BucketLayout bucket_layout(const NamedTensors& parameters, const std::vector<std::size_t>& order,
                           const BucketCaps& caps);

/// The order in which gradients are likely to come: the last parameter first.
std::vector<std::size_t> reverse_order(std::size_t count);

}  // namespace stagecoach
