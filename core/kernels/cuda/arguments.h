#pragma once
/// @file
/// From a tensor's arguments to those of functions.h.

#include <cstdint>
#include <limits>

#include "core/error.h"
#include "core/tensor.h"

namespace stagecoach::cuda {

/// Kernels count in 32 bits: half the registers of 64, and a fraction of the time for a division. The last block may
/// count a little beyond the end.
inline int small(std::int64_t count, std::int64_t most = std::numeric_limits<int>::max() - 1024) {
  STAGECOACH_CHECK(count <= most, "cuda: {} elements; these kernels count to {}", count, most);
  return static_cast<int>(count);
}

/// Memory for what a function keeps between its kernels; given back at the end of the call, in the stream's order.
template <class T>
class Partial {
 public:
  Partial(std::int64_t count, Device device) {
    if (count > 0) {
      tensor_ = Tensor::empty({count}, dtype_of<T>, device);
    }
  }
  T* data() { return tensor_.defined() ? tensor_.mutable_data<T>() : nullptr; }

 private:
  Tensor tensor_;
};

}  // namespace stagecoach::cuda
