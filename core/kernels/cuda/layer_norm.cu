/// @file
/// Layer norm over rows [N, C], one block per row; the gradients of weight and bias, a block per group of columns.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <int kThreads, class T>
__global__ void layer_norm_kernel(int width, const T* x, const T* weight, const T* bias, T epsilon, T* y, T* mean,
                                  T* rstd) {
  using Reduction = BlockReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const int first = static_cast<int>(threadIdx.x);
  const long long start = static_cast<long long>(blockIdx.x) * width;
  T sum = 0;
  for (int c = first; c < width; c += kThreads) {
    sum += x[start + c];
  }
  const T m = reduce_block(reduction, sum, Sum{}) / static_cast<T>(width);
  T squares = 0;
  for (int c = first; c < width; c += kThreads) {
    squares += (x[start + c] - m) * (x[start + c] - m);
  }
  const T variance = reduce_block(reduction, squares, Sum{}) / static_cast<T>(width);
  const T inverse = 1 / sqrt(variance + epsilon);
  for (int c = first; c < width; c += kThreads) {
    y[start + c] = (x[start + c] - m) * inverse * weight[c] + bias[c];
  }
  if (first == 0) {
    mean[blockIdx.x] = m;
    rstd[blockIdx.x] = inverse;
  }
}

/// With xhat = (x - mean) rstd and g = grad_y weight: grad_x = rstd (g - mean(g) - xhat mean(g xhat)), over the row.
template <int kThreads, class T>
__global__ void layer_norm_grad_input_kernel(int width, const T* grad_y, const T* x, const T* mean, const T* rstd,
                                             const T* weight, T* grad_x) {
  using Reduction = BlockReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const int first = static_cast<int>(threadIdx.x);
  const long long start = static_cast<long long>(blockIdx.x) * width;
  const T m = mean[blockIdx.x];
  const T inverse = rstd[blockIdx.x];
  T grads = 0;
  T products = 0;
  for (int c = first; c < width; c += kThreads) {
    const T g = grad_y[start + c] * weight[c];
    grads += g;
    products += g * (x[start + c] - m) * inverse;
  }
  const T mean_grad = reduce_block(reduction, grads, Sum{}) / static_cast<T>(width);
  const T mean_product = reduce_block(reduction, products, Sum{}) / static_cast<T>(width);
  for (int c = first; c < width; c += kThreads) {
    const T xhat = (x[start + c] - m) * inverse;
    grad_x[start + c] = inverse * (grad_y[start + c] * weight[c] - mean_grad - xhat * mean_product);
  }
}

inline constexpr int kColumns = 32;  ///< adjacent columns, which a warp loads together
inline constexpr int kParts = 8;     ///< warps of a block, each of which sums every kParts-th row

template <class T>
struct ColumnSums {
  T weight[kParts][kColumns];
  T bias[kParts][kColumns];
};

template <class T>
__global__ void __launch_bounds__(kColumns* kParts)
    layer_norm_grad_weight_kernel(int rows, int width, const T* grad_y, const T* x, const T* mean, const T* rstd,
                                  T* grad_weight, T* grad_bias) {
  STAGECOACH_SHARED(ColumnSums<T>, sums);
  const int lane = static_cast<int>(threadIdx.x) % kColumns;
  const int part = static_cast<int>(threadIdx.x) / kColumns;
  const int c = static_cast<int>(blockIdx.x) * kColumns + lane;
  T weight_sum = 0;
  T bias_sum = 0;
  for (int n = part; n < rows && c < width; n += kParts) {
    const long long at = static_cast<long long>(n) * width + c;
    weight_sum += grad_y[at] * (x[at] - mean[n]) * rstd[n];
    bias_sum += grad_y[at];
  }
  sums.weight[part][lane] = weight_sum;
  sums.bias[part][lane] = bias_sum;
  __syncthreads();  // all sums are complete
  if (part == 0 && c < width) {
    for (int other = 1; other < kParts; ++other) {
      weight_sum += sums.weight[other][lane];
      bias_sum += sums.bias[other][lane];
    }
    grad_weight[c] = weight_sum;
    grad_bias[c] = bias_sum;
  }
}

namespace {

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    if (rows > 0) {
      with_threads_for(width, [&]<int kThreads>() {
        launch(layer_norm_kernel<kThreads, T>, static_cast<unsigned>(rows), kThreads, 0, compute_stream(x.device()),
               width, x.data<T>(), weight.data<T>(), bias.data<T>(), static_cast<T>(epsilon), y.mutable_data<T>(),
               mean.mutable_data<T>(), rstd.mutable_data<T>());
      });
    }
  });
}

void layer_norm_grad_input(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(x.dtype(), "layer_norm_grad_input", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    if (rows > 0) {
      with_threads_for(width, [&]<int kThreads>() {
        launch(layer_norm_grad_input_kernel<kThreads, T>, static_cast<unsigned>(rows), kThreads, 0,
               compute_stream(x.device()), width, grad_y.data<T>(), x.data<T>(), mean.data<T>(), rstd.data<T>(),
               weight.data<T>(), grad_x.mutable_data<T>());
      });
    }
  });
}

void layer_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            Tensor& grad_weight, Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "layer_norm_grad_weight", [&]<class T>() {
    const int width = to_int(x.size(1));
    launch(layer_norm_grad_weight_kernel<T>, static_cast<unsigned>((width + kColumns - 1) / kColumns),
           kColumns * kParts, 0, compute_stream(x.device()), to_int(x.size(0)), width, grad_y.data<T>(), x.data<T>(),
           mean.data<T>(), rstd.data<T>(), grad_weight.mutable_data<T>(), grad_bias.mutable_data<T>());
  });
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = layer_norm;
  table.layer_norm_grad_input = layer_norm_grad_input;
  table.layer_norm_grad_weight = layer_norm_grad_weight;
}

}  // namespace stagecoach::cuda
