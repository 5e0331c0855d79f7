/// @file
/// Softmax and its logarithm over rows [N, C]: a block a row.

#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/rows.cuh"

namespace stagecoach::cuda {

template <int kThreads, bool kLogarithm, class T>
__global__ void softmax_kernel(int classes, const T* x, T* y) {
  wait_for_earlier_kernels();
  using Reduction = BlockReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const long long start = static_cast<long long>(blockIdx.x) * classes;
  const LogSoftmax<T> log_softmax = log_softmax_of<kThreads>(reduction, x + start, classes);
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    const T logarithm = log_softmax(x[start + c]);
    y[start + c] = kLogarithm ? logarithm : exp(logarithm);
  }
}

template <int kThreads, bool kLogarithm, class T>
__global__ void softmax_grad_kernel(int classes, const T* grad_y, const T* y, T* grad_x) {
  wait_for_earlier_kernels();
  using Reduction = BlockReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const long long start = static_cast<long long>(blockIdx.x) * classes;
  T sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    sum += kLogarithm ? grad_y[start + c] : grad_y[start + c] * y[start + c];
  }
  sum = reduce_block(reduction, sum, Sum{});
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kThreads) {
    const T grad = grad_y[start + c];
    const T value = y[start + c];
    grad_x[start + c] = kLogarithm ? grad - exp(value) * sum : value * (grad - sum);
  }
}

template <bool kLogarithm, class T>
void launch_softmax(cudaStream_t stream, int rows, int classes, const T* x, T* y) {
  if (rows > 0) {
    with_threads_for(classes, [&]<int kThreads>() {
      launch(softmax_kernel<kThreads, kLogarithm, T>, static_cast<unsigned>(rows), kThreads, 0, stream, classes, x, y);
    });
  }
}

template <bool kLogarithm, class T>
void launch_softmax_grad(cudaStream_t stream, int rows, int classes, const T* grad_y, const T* y, T* grad_x) {
  if (rows > 0) {
    with_threads_for(classes, [&]<int kThreads>() {
      launch(softmax_grad_kernel<kThreads, kLogarithm, T>, static_cast<unsigned>(rows), kThreads, 0, stream, classes,
             grad_y, y, grad_x);
    });
  }
}

template <class T>
void softmax(cudaStream_t stream, int rows, int classes, const T* x, T* y) {
  launch_softmax<false>(stream, rows, classes, x, y);
}
template <class T>
void log_softmax(cudaStream_t stream, int rows, int classes, const T* x, T* y) {
  launch_softmax<true>(stream, rows, classes, x, y);
}
template <class T>
void softmax_grad(cudaStream_t stream, int rows, int classes, const T* grad_y, const T* y, T* grad_x) {
  launch_softmax_grad<false>(stream, rows, classes, grad_y, y, grad_x);
}
template <class T>
void log_softmax_grad(cudaStream_t stream, int rows, int classes, const T* grad_y, const T* y, T* grad_x) {
  launch_softmax_grad<true>(stream, rows, classes, grad_y, y, grad_x);
}

#define STAGECOACH_INSTANTIATE(T)                                                \
  template void softmax<T>(cudaStream_t, int, int, const T*, T*);                \
  template void log_softmax<T>(cudaStream_t, int, int, const T*, T*);            \
  template void softmax_grad<T>(cudaStream_t, int, int, const T*, const T*, T*); \
  template void log_softmax_grad<T>(cudaStream_t, int, int, const T*, const T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
