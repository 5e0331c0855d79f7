/// @file
/// Pooling. In the forward, a thread computes one output; in the backward, the gradient of one input from all windows
/// that contain it. So no two threads write to one element, and the order of the sum is fixed.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// Planes [H, W] to planes [P, Q].
struct PoolExtents {
  int planes;
  int height;   // H
  int width;    // W
  int rows;     // P
  int columns;  // Q
  int kernel;
  int stride;
  int padding;
};

/// Returns whether `value` replaces `best`. NaN wins and propagates: a diverged run must be visible.
template <class T>
__device__ bool wins(T value, T best) {
  return value > best || value != value;
}

template <class T>
__global__ void max_pool2d_kernel(int count, PoolExtents e, FastDivmod rows, FastDivmod columns, const T* x, T* y,
                                  std::int32_t* argmax) {
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
  T max = from[best];
  for (int i = first_row; i < end_row; ++i) {
    for (int j = first_column; j < end_column; ++j) {
      const T value = from[i * e.width + j];
      if (wins(value, max)) {
        max = value;
        best = i * e.width + j;
      }
    }
  }
  y[at] = max;
  argmax[at] = best;
}

template <class T>
__global__ void max_pool2d_grad_kernel(int count, PoolExtents e, FastDivmod height, FastDivmod width, FastDivmod stride,
                                       const T* grad_y, const std::int32_t* argmax, T* grad_x) {
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
      if (argmax[output] == place) {
        sum += grad_y[output];
      }
    }
  }
  grad_x[at] = sum;
}

// ---- Means of planes

constexpr int kPlaneThreads = 64;

/// Computes the means of planes that are too small for one block each: one thread per plane.
template <class T>
__global__ void small_plane_means_kernel(int planes, int size, const T* x, T* y) {
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
__global__ void plane_means_grad_kernel(int count, FastDivmod size, const T* grad_y, T* grad_x) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    grad_x[at] = grad_y[size.quotient(at)] / static_cast<T>(size.value());
  }
}

namespace {

PoolExtents extents_of(const Tensor& x, const Tensor& y, const Window& window) {
  to_int(x.numel());
  to_int(y.numel());
  return {
      to_int(x.size(0) * x.size(1)), to_int(x.size(2)),     to_int(x.size(3)),     to_int(y.size(2)), to_int(y.size(3)),
      to_int(window.kernel),         to_int(window.stride), to_int(window.padding)};
}

void max_pool2d(const Tensor& x, const Window& window, Tensor& y, Tensor& argmax) {
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    const PoolExtents e = extents_of(x, y, window);
    launch_elements(x.device(), max_pool2d_kernel<T>, e.planes * e.rows * e.columns, e, FastDivmod(e.rows),
                    FastDivmod(e.columns), x.data<T>(), y.mutable_data<T>(), argmax.mutable_data<std::int32_t>());
  });
}

void max_pool2d_grad(const Tensor& grad_y, const Tensor& argmax, const Window& window, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "max_pool2d_grad", [&]<class T>() {
    const PoolExtents e = extents_of(grad_x, grad_y, window);
    launch_elements(grad_y.device(), max_pool2d_grad_kernel<T>, e.planes * e.height * e.width, e, FastDivmod(e.height),
                    FastDivmod(e.width), FastDivmod(e.stride), grad_y.data<T>(), argmax.data<std::int32_t>(),
                    grad_x.mutable_data<T>());
  });
}

void global_average_pool(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "global_average_pool", [&]<class T>() {
    to_int(x.numel());
    const cudaStream_t stream = compute_stream(x.device());
    const int planes = to_int(y.numel());
    const int size = to_int(x.size(2) * x.size(3));
    if (planes > 0 && size <= kPlaneThreads) {
      launch(small_plane_means_kernel<T>, blocks_for(planes), kThreads, 0, stream, planes, size, x.data<T>(),
             y.mutable_data<T>());
    } else if (planes > 0) {
      launch(plane_means_kernel<T>, static_cast<unsigned>(planes), kPlaneThreads, 0, stream, size, x.data<T>(),
             y.mutable_data<T>());
    }
  });
}

void global_average_pool_grad(const Tensor& grad_y, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "global_average_pool_grad", [&]<class T>() {
    const FastDivmod plane(to_int(grad_x.size(2) * grad_x.size(3)));
    launch_elements(grad_y.device(), plane_means_grad_kernel<T>, to_int(grad_x.numel()), plane, grad_y.data<T>(),
                    grad_x.mutable_data<T>());
  });
}

}  // namespace

void add_pool(Kernels& table) {
  table.max_pool2d = max_pool2d;
  table.max_pool2d_grad = max_pool2d_grad;
  table.global_average_pool = global_average_pool;
  table.global_average_pool_grad = global_average_pool_grad;
}

}  // namespace stagecoach::cuda
