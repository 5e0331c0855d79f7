/// @file
/// Layer norm over rows [N, C]; the gradients of its weight and bias are sums over columns.

#include <algorithm>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <int kThreads, class T>
__global__ void layer_norm_kernel(int rows, int width, const T* x, const T* weight, const T* bias, T epsilon, T* y,
                                  T* mean, T* rstd) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const long long start = static_cast<long long>(row) * width;
  T sum = 0;
  for (int c = thread; c < width; c += kThreads) {
    sum += x[start + c];
  }
  const T m = reduce_row<kThreads>(reduction, sum, Sum{}) / static_cast<T>(width);
  T squares = 0;
  for (int c = thread; c < width; c += kThreads) {
    squares += (x[start + c] - m) * (x[start + c] - m);
  }
  const T variance = reduce_row<kThreads>(reduction, squares, Sum{}) / static_cast<T>(width);
  const T inverse = 1 / sqrt(variance + epsilon);
  for (int c = thread; c < width; c += kThreads) {
    y[start + c] = (x[start + c] - m) * inverse * weight[c] + bias[c];
  }
  if (thread == 0) {
    mean[row] = m;
    rstd[row] = inverse;
  }
}

/// With xhat = (x - mean) rstd and g = grad_y weight: grad_x = rstd (g - mean(g) - xhat mean(g xhat)), over the row.
template <int kThreads, class T>
__global__ void layer_norm_grad_input_kernel(int rows, int width, const T* grad_y, const T* x, const T* mean,
                                             const T* rstd, const T* weight, T* grad_x) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const long long start = static_cast<long long>(row) * width;
  const T m = mean[row];
  const T inverse = rstd[row];
  T grads = 0;
  T products = 0;
  for (int c = thread; c < width; c += kThreads) {
    const T g = grad_y[start + c] * weight[c];
    grads += g;
    products += g * (x[start + c] - m) * inverse;
  }
  const T mean_grad = reduce_row<kThreads>(reduction, grads, Sum{}) / static_cast<T>(width);
  const T mean_product = reduce_row<kThreads>(reduction, products, Sum{}) / static_cast<T>(width);
  for (int c = thread; c < width; c += kThreads) {
    const T xhat = (x[start + c] - m) * inverse;
    grad_x[start + c] = inverse * (grad_y[start + c] * weight[c] - mean_grad - xhat * mean_product);
  }
}

// ---- Sums over columns

inline constexpr int kColumns = 32;  ///< adjacent columns, which a warp loads together
inline constexpr int kWarps = 8;     ///< of a block, each of which sums every kWarps-th row

template <class T>
struct SumsOfWarps {
  TwoSums<T> at[kWarps][kColumns];
};

/// Each block sums value(row, column) over kColumns columns and, as blockIdx.y, a part of the rows, and calls
/// store(part, column, sum).
template <class T, class Value, class Store>
__global__ void __launch_bounds__(kColumns* kWarps)
    sum_columns(int rows, int rows_per_part, int width, Value value, Store store) {
  STAGECOACH_SHARED(SumsOfWarps<T>, sums);
  const int lane = static_cast<int>(threadIdx.x) % kColumns;
  const int warp = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(blockIdx.x) * kColumns + lane;
  const int part = static_cast<int>(blockIdx.y);
  const int end = rows - part * rows_per_part < rows_per_part ? rows : (part + 1) * rows_per_part;
  TwoSums<T> sum{};
#pragma unroll 4
  for (int row = part * rows_per_part + warp; row < end && column < width; row += kWarps) {
    sum = sum + value(row, column);
  }
  sums.at[warp][lane] = sum;
  __syncthreads();  // all sums are complete
  if (warp == 0 && column < width) {
    for (int other = 1; other < kWarps; ++other) {
      sum = sum + sums.at[other][lane];
    }
    store(part, column, sum);
  }
}

/// Calls store(part, column, sum of value(row, column) over the rows of the part).
template <class T, class Value, class Store>
void sum_parts(Device device, int rows, int parts, int width, const Value& value, const Store& store) {
  const dim3 grid(static_cast<unsigned>((width + kColumns - 1) / kColumns), static_cast<unsigned>(parts));
  launch(sum_columns<T, Value, Store>, grid, kColumns * kWarps, 0, compute_stream(device), rows,
         (rows + parts - 1) / parts, width, value, store);
}

/// Returns the number of parts into which many rows are divided, so that the whole GPU sums them.
inline int parts_of_rows(int rows) {
  constexpr int kMinRows = 128;  // 16 per warp
  constexpr int kMaxParts = 128;
  return std::clamp(rows / kMinRows, 1, kMaxParts);
}

template <class T>
void sum_layer_norm_gradients(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                              Tensor& grad_weight, Tensor& grad_bias) {
  const int width = to_int(x.size(1));
  const T* grads = grad_y.data<T>();
  const T* xs = x.data<T>();
  const T* means = mean.data<T>();
  const T* rstds = rstd.data<T>();
  const auto gradients = [=] __device__(int row, int column) -> TwoSums<T> {
    const long long at = static_cast<long long>(row) * width + column;
    return {grads[at] * (xs[at] - means[row]) * rstds[row], grads[at]};
  };
  T* weights = grad_weight.mutable_data<T>();
  T* biases = grad_bias.mutable_data<T>();
  const auto store = [=] __device__(int, int column, const TwoSums<T>& sums) {
    weights[column] = sums.products;
    biases[column] = sums.values;
  };
  const int rows = to_int(x.size(0));
  const int parts = parts_of_rows(rows);
  if (parts == 1) {
    return sum_parts<T>(x.device(), rows, 1, width, gradients, store);
  }
  Workspace<T> workspace(std::int64_t{2} * parts * width, x.device());
  auto* partial = reinterpret_cast<TwoSums<T>*>(workspace.data());  // [parts, width]
  sum_parts<T>(x.device(), rows, parts, width, gradients,
               [=] __device__(int part, int column, const TwoSums<T>& sums) { partial[part * width + column] = sums; });
  sum_parts<T>(
      x.device(), parts, 1, width,
      [=] __device__(int part, int column) -> TwoSums<T> { return partial[part * width + column]; }, store);
}

namespace {

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    with_threads_for(rows, width, [&]<int kThreads>(unsigned blocks) {
      launch(layer_norm_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(x.device()), rows, width,
             x.data<T>(), weight.data<T>(), bias.data<T>(), static_cast<T>(epsilon), y.mutable_data<T>(),
             mean.mutable_data<T>(), rstd.mutable_data<T>());
    });
  });
}

void layer_norm_grad_input(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(x.dtype(), "layer_norm_grad_input", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    with_threads_for(rows, width, [&]<int kThreads>(unsigned blocks) {
      launch(layer_norm_grad_input_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(x.device()), rows,
             width, grad_y.data<T>(), x.data<T>(), mean.data<T>(), rstd.data<T>(), weight.data<T>(),
             grad_x.mutable_data<T>());
    });
  });
}

void layer_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            Tensor& grad_weight, Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "layer_norm_grad_weight",
                    [&]<class T>() { sum_layer_norm_gradients<T>(grad_y, x, mean, rstd, grad_weight, grad_bias); });
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = layer_norm;
  table.layer_norm_grad_input = layer_norm_grad_input;
  table.layer_norm_grad_weight = layer_norm_grad_weight;
}

}  // namespace stagecoach::cuda
