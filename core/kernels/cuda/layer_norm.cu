/// @file
/// Layer norm over rows [N, C]; the gradients of its weight and bias are sums over columns.

#include <algorithm>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/vectorized.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// The elements of a row that a thread takes: vectors of kCount.
template <int kThreads, int kCount>
struct VectorsOfRow {
  int thread;
  int width;
  /// Calls body(first element of a vector).
  template <class Body>
  __device__ void each(const Body& body) const {
    for (int c = thread * kCount; c < width; c += kThreads * kCount) {
      body(c);
    }
  }
};

template <int kThreads, int kCount, class T>
__global__ void layer_norm_kernel(int rows, int width, const T* x, const T* weight, const T* bias, T epsilon, T* y,
                                  T* mean, T* rstd) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  const VectorsOfRow<kThreads, kCount> vectors{thread, width};
  const bool inside = row < rows;  // a thread without a row repeats the last one, as its warp waits for it
  const long long start = static_cast<long long>(inside ? row : rows - 1) * width;
  T sum = 0;
  vectors.each([&](int c) {
    for (const T value : vector_at<kCount>(x + start + c).at) {
      sum += value;
    }
  });
  const T m = reduce_row<kThreads>(reduction, sum, Sum{}) / static_cast<T>(width);
  T squares = 0;
  vectors.each([&](int c) {
    for (const T value : vector_at<kCount>(x + start + c).at) {
      squares += (value - m) * (value - m);
    }
  });
  const T variance = reduce_row<kThreads>(reduction, squares, Sum{}) / static_cast<T>(width);
  const T inverse = 1 / sqrt(variance + epsilon);
  if (!inside) {
    return;
  }
  vectors.each([&](int c) {
    vector_at<kCount>(y + start + c) = map_vector<T, kCount>(
        [=](T value, T scale, T shift) { return (value - m) * inverse * scale + shift; },
        vector_at<kCount>(x + start + c), vector_at<kCount>(weight + c), vector_at<kCount>(bias + c));
  });
  if (thread == 0) {
    mean[row] = m;
    rstd[row] = inverse;
  }
}

/// With xhat = (x - mean) rstd and g = grad_y weight: grad_x = rstd (g - mean(g) - xhat mean(g xhat)), over the row.
template <int kThreads, int kCount, class T>
__global__ void layer_norm_grad_input_kernel(int rows, int width, const T* grad_y, const T* x, const T* mean,
                                             const T* rstd, const T* weight, T* grad_x) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  const VectorsOfRow<kThreads, kCount> vectors{thread, width};
  const bool inside = row < rows;  // as above
  const long long start = static_cast<long long>(inside ? row : rows - 1) * width;
  const T m = mean[inside ? row : rows - 1];
  const T inverse = rstd[inside ? row : rows - 1];
  T grads = 0;
  T products = 0;
  vectors.each([&](int c) {
    const auto gradients = vector_at<kCount>(grad_y + start + c);
    const auto values = vector_at<kCount>(x + start + c);
    const auto scales = vector_at<kCount>(weight + c);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T g = gradients.at[i] * scales.at[i];
      grads += g;
      products += g * (values.at[i] - m) * inverse;
    }
  });
  const T mean_grad = reduce_row<kThreads>(reduction, grads, Sum{}) / static_cast<T>(width);
  const T mean_product = reduce_row<kThreads>(reduction, products, Sum{}) / static_cast<T>(width);
  if (!inside) {
    return;
  }
  vectors.each([&](int c) {
    vector_at<kCount>(grad_x + start + c) = map_vector<T, kCount>(
        [=](T gradient, T value, T scale) {
          return inverse * (gradient * scale - mean_grad - (value - m) * inverse * mean_product);
        },
        vector_at<kCount>(grad_y + start + c), vector_at<kCount>(x + start + c), vector_at<kCount>(weight + c));
  });
}

/// Calls body<kThreads, kCount>(blocks) with the threads per row, each of which takes kCount adjacent elements at once.
template <class Body, class... Arrays>
void with_threads_and_vectors(int rows, int width, const Body& body, const Arrays*... arrays) {
  constexpr int kHalf = kWarp / 2;
  with_vector_width(
      width,
      [&]<int kCount>() {
        if (kCount > 1 && rows > 0 && width <= kHalf * kCount) {  // so short that a whole warp would be half idle
          constexpr int kRows = kRowBlockThreads / kHalf;
          body.template operator()<kHalf, kCount>(static_cast<unsigned>((rows + kRows - 1) / kRows));
        } else {
          with_threads_for(rows, width,
                           [&]<int kThreads>(unsigned blocks) { body.template operator()<kThreads, kCount>(blocks); });
        }
      },
      arrays...);
}

// ---- Sums over columns

inline constexpr int kSumThreads = 256;

/// The sums of kCount adjacent columns.
template <class T, int kCount>
struct ColumnSums {
  TwoSums<T> at[kCount];
  __device__ void add(const ColumnSums& other) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      at[i] = at[i] + other.at[i];
    }
  }
};

/// kAcross threads load adjacent columns of a row together; each group of them sums every kDown-th row.
template <class T, int kCount>
struct SumsOfThreads {
  static constexpr int kAcross = kWarp / (kCount > 1 ? 2 : 1);
  static constexpr int kDown = kSumThreads / kAcross;
  ColumnSums<T, kCount> at[kDown][kAcross];
};

/// Each block sums value(row, column), of kCount columns, over kAcross * kCount columns and, as blockIdx.y, a part of
/// the rows, and calls store(part, column, sums).
template <class T, int kCount, class Value, class Store>
__global__ void __launch_bounds__(kSumThreads)
    sum_columns(int rows, int rows_per_part, int width, Value value, Store store) {
  using Shared = SumsOfThreads<T, kCount>;
  STAGECOACH_SHARED(Shared, shared);
  const int x = static_cast<int>(threadIdx.x) % Shared::kAcross;
  const int y = static_cast<int>(threadIdx.x) / Shared::kAcross;
  const int column = (static_cast<int>(blockIdx.x) * Shared::kAcross + x) * kCount;
  const int part = static_cast<int>(blockIdx.y);
  const int end = rows - part * rows_per_part < rows_per_part ? rows : (part + 1) * rows_per_part;
  ColumnSums<T, kCount> sums{};
#pragma unroll 8
  for (int row = part * rows_per_part + y; row < end && column < width; row += Shared::kDown) {
    sums.add(value(row, column));
  }
  shared.at[y][x] = sums;
  __syncthreads();  // all sums are complete
  if (y == 0 && column < width) {
    for (int other = 1; other < Shared::kDown; ++other) {
      sums.add(shared.at[other][x]);
    }
    store(part, column, sums);
  }
}

/// Calls store(part, column, sums of value(row, column) over the rows of the part), for kCount columns at a time.
template <class T, int kCount, class Value, class Store>
void sum_parts(Device device, int rows, int parts, int width, const Value& value, const Store& store) {
  constexpr int kColumns = SumsOfThreads<T, kCount>::kAcross * kCount;
  const dim3 grid(static_cast<unsigned>((width + kColumns - 1) / kColumns), static_cast<unsigned>(parts));
  launch(sum_columns<T, kCount, Value, Store>, grid, kSumThreads, 0, compute_stream(device), rows,
         (rows + parts - 1) / parts, width, value, store);
}

/// Returns the number of parts into which many rows are divided, so that the whole GPU sums them.
inline int parts_of_rows(int rows) {
  constexpr int kMinRows = 128;
  constexpr int kMaxParts = 256;
  return std::clamp(rows / kMinRows, 1, kMaxParts);
}

template <class T, int kCount>
void sum_layer_norm_gradients(Device device, int rows, int width, const T* grads, const T* xs, const T* means,
                              const T* rstds, T* weights, T* biases) {
  using Sums = ColumnSums<T, kCount>;
  const auto gradients = [=] __device__(int row, int column) -> Sums {
    const long long at = static_cast<long long>(row) * width + column;
    const auto gradient = vector_at<kCount>(grads + at);
    const auto x = vector_at<kCount>(xs + at);
    Sums sums;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      sums.at[i] = {gradient.at[i] * (x.at[i] - means[row]) * rstds[row], gradient.at[i]};
    }
    return sums;
  };
  const auto store = [=] __device__(int, int column, const Sums& sums) {
    for (int i = 0; i < kCount; ++i) {
      weights[column + i] = sums.at[i].products;
      biases[column + i] = sums.at[i].values;
    }
  };
  const int parts = parts_of_rows(rows);
  if (parts == 1) {
    return sum_parts<T, kCount>(device, rows, 1, width, gradients, store);
  }
  Workspace<T> workspace(std::int64_t{2} * parts * width, device);
  auto* partial = reinterpret_cast<Sums*>(workspace.data());  // [parts, width / kCount]
  const int vectors = width / kCount;
  sum_parts<T, kCount>(device, rows, parts, width, gradients, [=] __device__(int part, int column, const Sums& sums) {
    partial[part * vectors + column / kCount] = sums;
  });
  sum_parts<T, kCount>(
      device, parts, 1, width,
      [=] __device__(int part, int column) -> Sums { return partial[part * vectors + column / kCount]; }, store);
}

namespace {

void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    const auto launch_kernel = [&]<int kThreads, int kCount>(unsigned blocks) {
      launch(layer_norm_kernel<kThreads, kCount, T>, blocks, kRowBlockThreads, 0, compute_stream(x.device()), rows,
             width, x.data<T>(), weight.data<T>(), bias.data<T>(), static_cast<T>(epsilon), y.mutable_data<T>(),
             mean.mutable_data<T>(), rstd.mutable_data<T>());
    };
    with_threads_and_vectors(rows, width, launch_kernel, x.data<T>(), weight.data<T>(), bias.data<T>(), y.data<T>());
  });
}

void layer_norm_grad_input(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& weight, Tensor& grad_x) {
  dispatch_floating(x.dtype(), "layer_norm_grad_input", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int width = to_int(x.size(1));
    const auto launch_kernel = [&]<int kThreads, int kCount>(unsigned blocks) {
      launch(layer_norm_grad_input_kernel<kThreads, kCount, T>, blocks, kRowBlockThreads, 0, compute_stream(x.device()),
             rows, width, grad_y.data<T>(), x.data<T>(), mean.data<T>(), rstd.data<T>(), weight.data<T>(),
             grad_x.mutable_data<T>());
    };
    with_threads_and_vectors(rows, width, launch_kernel, grad_y.data<T>(), x.data<T>(), weight.data<T>(),
                             grad_x.data<T>());
  });
}

void layer_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                            Tensor& grad_weight, Tensor& grad_bias) {
  dispatch_floating(x.dtype(), "layer_norm_grad_weight", [&]<class T>() {
    const int width = to_int(x.size(1));
    const auto sum = [&]<int kCount>() {
      sum_layer_norm_gradients<T, kCount>(x.device(), to_int(x.size(0)), width, grad_y.data<T>(), x.data<T>(),
                                          mean.data<T>(), rstd.data<T>(), grad_weight.mutable_data<T>(),
                                          grad_bias.mutable_data<T>());
    };
    with_vector_width(width, sum, grad_y.data<T>(), x.data<T>());
  });
}

}  // namespace

void add_layer_norm(Kernels& table) {
  table.layer_norm = layer_norm;
  table.layer_norm_grad_input = layer_norm_grad_input;
  table.layer_norm_grad_weight = layer_norm_grad_weight;
}

}  // namespace stagecoach::cuda
