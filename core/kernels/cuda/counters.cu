/// @file
/// Single numbers that stay on the GPU, so that the CPU need not wait for them.

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/functions.h"

namespace stagecoach::cuda {

template <class T>
__global__ void accumulate_kernel(const T* x, double* sum) {
  wait_for_earlier_kernels();
  *sum += static_cast<double>(*x);
}

template <class T>
void accumulate(cudaStream_t stream, const T* x, double* sum) {
  launch(accumulate_kernel<T>, 1, 1, 0, stream, x, sum);
}

template void accumulate<float>(cudaStream_t, const float*, double*);
template void accumulate<double>(cudaStream_t, const double*, double*);

__global__ void increment_kernel(Counters counters) {
  wait_for_earlier_kernels();
  if (static_cast<int>(threadIdx.x) < counters.count) {
    ++*counters.at[threadIdx.x];
  }
}

void increment(cudaStream_t stream, const Counters& counters) {
  launch(increment_kernel, 1, Counters::kMost, 0, stream, counters);
}

}  // namespace stagecoach::cuda
