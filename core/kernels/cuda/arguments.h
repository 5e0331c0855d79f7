#pragma once
/// @file
/// What the `.cu` files need to turn tensors into the arguments of kernels.

#include <cstdint>
#include <limits>

#include "core/cuda/queues.h"
#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach::cuda {

/// Kernels count in 32 bits: half the registers of 64, and a fraction of the time for a division. The last block may
/// count a little beyond the end.
inline constexpr std::int64_t kMaxCount = std::numeric_limits<int>::max() - 1024;

/// `count` as an int. Throws Error when it is larger than `max`.
int to_int(std::int64_t count, std::int64_t max = kMaxCount);
/// The kernel of a convolution's window. Throws Error when it is larger than kMaxKernel.
int kernel_of(const Window& window);

template <class T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
template <class T>
T* mutable_data_or_null(Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data<T>() : nullptr;
}

/// Memory for what a function keeps between its kernels; deallocated at the end of the call, in the stream's order.
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
