#pragma once
/// @file
/// Helpers of the `.cu` files that convert tensors to kernel arguments.

#include <cstdint>
#include <limits>

#include "core/cuda/queues.h"
#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach::cuda {

/// Kernels use 32-bit counts: half the registers of 64-bit ones, and much faster division. The last block may count
/// slightly beyond the end.
inline constexpr std::int64_t kMaxCount = std::numeric_limits<int>::max() - 1024;

/// Returns `count` as an int. Throws Error if it is larger than `max`.
int to_int(std::int64_t count, std::int64_t max = kMaxCount);
/// Returns the kernel size of a convolution's window. Throws Error if it is larger than kMaxKernel.
int kernel_of(const Window& window);

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
template <class T>
T* mutable_data_or_null(Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data<T>() : nullptr;
}

/// Memory for intermediate results between the kernels of a function; deallocated at the end of the call, in the
/// stream's order.
template <class T>
class Workspace {
 public:
  Workspace(std::int64_t count, Device device) {
    if (count > 0) {
      tensor_ = Tensor::empty({count}, dtype_of<T>, device);
    }
  }
  T* data() { return mutable_data_or_null<T>(tensor_); }

 private:
  Tensor tensor_;
};

}  // namespace stagecoach::cuda
