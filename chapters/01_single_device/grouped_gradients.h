#pragma once
/// @file
/// Sums of gradients in two levels on one device: what ranks with several micro-batches each do together.

#include <cstdint>
#include <vector>

#include "nn/named_tensors.h"

namespace stagecoach {

/// Adds up the gradients of a batch in groups, each group by itself, and then the groups' sums, in order. Sums of
/// floats depend on their order: so one device has the bits of ranks that add up their micro-batches before the others'
/// sums, or of copies of sharded weights. Group g has the samples of share_of(samples, g, groups).
class GroupedGradients {
 public:
  /// For the backwards of one step, of `samples` samples. With one group, gradients are left as they are.
  GroupedGradients(NamedTensors parameters, std::int64_t samples, std::int64_t groups);
  /// Says that a backward has added the gradients of the next `samples` samples, all of one group. After those of the
  /// last group, the parameters' gradients are the sums of all.
  void add(std::int64_t samples);

 private:
  NamedTensors parameters_;
  std::int64_t samples_;
  std::int64_t groups_;
  std::int64_t group_ = 0;  // the current one
  std::int64_t done_ = 0;   // samples
  std::vector<Tensor> sums_;
};

}  // namespace stagecoach
