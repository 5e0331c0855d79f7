/// @file
/// Pooling. Forward a thread makes one output; backward it makes one input, from all windows that it was in: so no two
/// threads write to one place, and the order of the sum is fixed.

#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/divisor.cuh"
#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

/// A value that is not a number wins, and stays: a diverged run must be seen.
template <class T>
__device__ bool wins(T value, T best) {
  return value > best || value != value;
}

template <class T>
__global__ void max_pool2d_kernel(PoolExtents e, Divisor rows, Divisor columns, int count, const T* x, T* y,
                                  std::int32_t* picked) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at >= count) {
    return;
  }
  const int line = columns.quotient(at);
  const int plane = rows.quotient(line);
  const int top = rows.remainder(line, plane) * e.stride - e.padding;
  const int left = columns.remainder(at, line) * e.stride - e.padding;
  const int first_row = top < 0 ? 0 : top;
  const int first_column = left < 0 ? 0 : left;
  const int end_row = top + e.kernel < e.height ? top + e.kernel : e.height;
  const int end_column = left + e.kernel < e.width ? left + e.kernel : e.width;
  const T* from = x + static_cast<long long>(plane) * e.height * e.width;
  int best = first_row * e.width + first_column;
  T largest = from[best];
  for (int i = first_row; i < end_row; ++i) {
    for (int j = first_column; j < end_column; ++j) {
      const T value = from[i * e.width + j];
      if (wins(value, largest)) {
        largest = value;
        best = i * e.width + j;
      }
    }
  }
  y[at] = largest;
  picked[at] = best;
}

template <class T>
void max_pool2d(cudaStream_t stream, const PoolExtents& e, const T* x, T* y, std::int32_t* picked) {
  const int count = e.planes * e.rows * e.columns;
  if (count > 0) {
    launch(max_pool2d_kernel<T>, blocks_for(count), kThreads, 0, stream, e, Divisor(e.rows), Divisor(e.columns), count,
           x, y, picked);
  }
}

template <class T>
__global__ void max_pool2d_grad_kernel(PoolExtents e, Divisor height, Divisor width, Divisor stride, int count,
                                       const T* grad_y, const std::int32_t* picked, T* grad_x) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at >= count) {
    return;
  }
  const int line = width.quotient(at);
  const int plane = height.quotient(line);
  const int h = height.remainder(line, plane) + e.padding;
  const int w = width.remainder(at, line) + e.padding;
  // The windows p with p stride <= h < p stride + kernel.
  const int first_p = h < e.kernel ? 0 : stride.quotient(h - e.kernel) + 1;
  const int first_q = w < e.kernel ? 0 : stride.quotient(w - e.kernel) + 1;
  const int end_p = stride.quotient(h) + 1 < e.rows ? stride.quotient(h) + 1 : e.rows;
  const int end_q = stride.quotient(w) + 1 < e.columns ? stride.quotient(w) + 1 : e.columns;
  const int place = at - plane * e.height * e.width;
  const long long start = static_cast<long long>(plane) * e.rows * e.columns;
  T sum = 0;
  for (int p = first_p; p < end_p; ++p) {
    for (int q = first_q; q < end_q; ++q) {
      const long long output = start + p * e.columns + q;
      if (picked[output] == place) {
        sum += grad_y[output];
      }
    }
  }
  grad_x[at] = sum;
}

template <class T>
void max_pool2d_grad(cudaStream_t stream, const PoolExtents& e, const T* grad_y, const std::int32_t* picked,
                     T* grad_x) {
  const int count = e.planes * e.height * e.width;
  if (count > 0) {
    launch(max_pool2d_grad_kernel<T>, blocks_for(count), kThreads, 0, stream, e, Divisor(e.height), Divisor(e.width),
           Divisor(e.stride), count, grad_y, picked, grad_x);
  }
}

// ---- Means of planes

constexpr int kPlaneThreads = 64;

/// Planes that are too small for a block of their own: a thread takes a whole one.
template <class T>
__global__ void small_plane_means_kernel(int planes, int size, const T* x, T* y) {
  wait_for_earlier_kernels();
  const auto plane = static_cast<int>(element());
  if (plane < planes) {
    T sum = 0;
    for (int i = 0; i < size; ++i) {
      sum += x[plane * size + i];
    }
    y[plane] = sum / static_cast<T>(size);
  }
}

template <class T>
__global__ void plane_means_kernel(int size, const T* x, T* y) {
  wait_for_earlier_kernels();
  using Reduction = BlockReduction<T, kPlaneThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const T* plane = x + static_cast<long long>(blockIdx.x) * size;
  T sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kPlaneThreads) {
    sum += plane[i];
  }
  sum = reduce_block(reduction, sum, Sum{});
  if (threadIdx.x == 0) {
    y[blockIdx.x] = sum / static_cast<T>(size);
  }
}

template <class T>
void plane_means(cudaStream_t stream, int planes, int size, const T* x, T* y) {
  if (planes > 0 && size <= kPlaneThreads) {
    launch(small_plane_means_kernel<T>, blocks_for(planes), kThreads, 0, stream, planes, size, x, y);
  } else if (planes > 0) {
    launch(plane_means_kernel<T>, static_cast<unsigned>(planes), kPlaneThreads, 0, stream, size, x, y);
  }
}

template <class T>
__global__ void plane_means_grad_kernel(int count, Divisor size, const T* grad_y, T* grad_x) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at < count) {
    grad_x[at] = grad_y[size.quotient(at)] / static_cast<T>(size.value());
  }
}

template <class T>
void plane_means_grad(cudaStream_t stream, int planes, int size, const T* grad_y, T* grad_x) {
  const int count = planes * size;
  if (count > 0) {
    launch(plane_means_grad_kernel<T>, blocks_for(count), kThreads, 0, stream, count, Divisor(size), grad_y, grad_x);
  }
}

#define STAGECOACH_INSTANTIATE(T)                                                                        \
  template void max_pool2d<T>(cudaStream_t, const PoolExtents&, const T*, T*, std::int32_t*);            \
  template void max_pool2d_grad<T>(cudaStream_t, const PoolExtents&, const T*, const std::int32_t*, T*); \
  template void plane_means<T>(cudaStream_t, int, int, const T*, T*);                                    \
  template void plane_means_grad<T>(cudaStream_t, int, int, const T*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
