#pragma once
/// @file
/// Lab 6, part 1: which gradients are summed together.

#include <cstddef>
#include <vector>

namespace stagecoach::lab {

/// Indices of parameters, bucket by bucket.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// Divides parameters of these sizes, in bytes, into buckets, from the last parameter to the first: buckets[0] begins
/// with the last one. `first_cap` is the most bytes of the first bucket, `cap` of every other. A bucket is closed
/// before the parameter that would make it larger than that. (The library closes it after that parameter, so its
/// buckets can be larger than their cap.) A parameter that is larger by itself has a bucket of its own. No bucket is
/// empty, and each takes as many parameters as it may. No parameters: no buckets.
BucketLayout assign_buckets(const std::vector<std::size_t>& bytes, std::size_t first_cap, std::size_t cap);

}  // namespace stagecoach::lab
