#pragma once
/// @file
/// CUB's block-wide reduction, for the emulation: the same interface, in the order of the threads.

#include <cuda_runtime.h>

#include <cstring>

namespace cub {

template <class T, int kThreads>
class BlockReduce {
 public:
  struct TempStorage {
    T values[kThreads];
  };
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  /// As in CUB, only thread 0 gets the result; the others get bytes 0xff.
  template <class Operation>
  T Reduce(const T& value, Operation operation) {
    storage_.values[threadIdx.x] = value;
    __syncthreads();
    T result;
    std::memset(static_cast<void*>(&result), 0xff, sizeof(T));
    if (threadIdx.x == 0) {
      result = storage_.values[0];
      for (int i = 1; i < kThreads; ++i) {
        result = operation(result, storage_.values[i]);
      }
    }
    return result;
  }
  T Sum(const T& value) {
    return Reduce(value, [](const T& a, const T& b) { return a + b; });
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
