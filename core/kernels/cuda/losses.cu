/// @file
/// Losses. Each row is computed separately; then one block sums the rows, in float64 and in a fixed order.

#include <algorithm>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// out = factor * the sum of values, computed by one block.
template <class T>
__global__ void sum_up(const double* values, int count, double factor, T* out) {
  using Reduction = BlockReduction<double, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    sum += values[i];
  }
  sum = reduce_block(reduction, sum, Sum{});
  if (threadIdx.x == 0) {
    *out = static_cast<T>(factor * sum);
  }
}

template <int kRowThreads, class T>
__global__ void cross_entropy_kernel(int rows, int classes, const T* logits, const std::int32_t* labels,
                                     double* row_losses, T* probabilities) {
  using Reduction = RowReduction<T, kRowThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kRowThreads>();
  if (row >= rows) {
    return;
  }
  const long long start = static_cast<long long>(row) * classes;
  const LogSoftmax<T> log_softmax = log_softmax_of<kRowThreads>(reduction, thread, logits + start, classes);
  for (int c = thread; c < classes; c += kRowThreads) {
    probabilities[start + c] = exp(log_softmax(logits[start + c]));
  }
  if (thread == 0) {
    const std::int32_t label = labels[row];
    const bool is_class = label >= 0 && label < classes;
    row_losses[row] = is_class ? -static_cast<double>(log_softmax(logits[start + label])) : nan("");
  }
}

template <class T>
__global__ void cross_entropy_grad_kernel(int count, int classes, const T* grad_loss, const T* probabilities,
                                          const std::int32_t* labels, T factor, T* grad_logits) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const T weight = factor * *grad_loss;
    const T scaled = weight * probabilities[at];
    grad_logits[at] = at % classes == labels[at / classes] ? scaled - weight : scaled;
  }
}

/// A label that is no class gives NaN, as in cross_entropy_kernel.
template <int kRowThreads, class T>
__global__ void class_statistics_kernel(int rows, int width, int first, int classes, const T* logits,
                                        const std::int32_t* labels, T* statistics) {
  using Reduction = RowReduction<T, kRowThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  using ClassReduction = RowReduction<int, kRowThreads>;
  STAGECOACH_SHARED(ClassReduction, class_reduction);
  const auto [row, thread] = RowThread<kRowThreads>();
  if (row >= rows) {
    return;
  }
  const T* values = logits + static_cast<long long>(row) * width;
  const LogSoftmax<T> log_softmax = log_softmax_of<kRowThreads>(reduction, thread, values, width);
  const int best = find_in_row<kRowThreads>(class_reduction, thread, values, width, log_softmax.max);
  if (thread == 0) {
    const std::int32_t label = labels[row];
    const int column = label - first;
    T* out = statistics + static_cast<long long>(row) * 4;
    out[0] = log_softmax.max;
    out[1] = static_cast<T>(first + best);
    out[2] = log_softmax.sum;
    out[3] = column >= 0 && column < width ? values[column] : T{0};
    if (label < 0 || label >= classes) {
      out[3] = static_cast<T>(nan(""));
    }
  }
}

/// One thread per sample.
template <class T>
__global__ void combined_cross_entropy_kernel(int samples, int slices, const T* statistics, double* row_losses,
                                              T* normalizers, std::int32_t* predictions) {
  const auto n = static_cast<int>(element());
  if (n >= samples) {
    return;
  }
  const auto slice_statistics = [&](int slice) {
    return statistics + (static_cast<long long>(slice) * samples + n) * 4;
  };
  const T* best = slice_statistics(0);
  for (int slice = 1; slice < slices; ++slice) {
    best = best[0] < slice_statistics(slice)[0] ? slice_statistics(slice) : best;
  }
  T sum = 0;
  T label_logit = 0;  // of the slice that has the label; the others have 0
  for (int slice = 0; slice < slices; ++slice) {
    const T* mine = slice_statistics(slice);
    sum += mine[2] * exp(mine[0] - best[0]);
    label_logit += mine[3];
  }
  const LogSoftmax<T> log_softmax{best[0], sum, log(sum)};
  normalizers[2 * n] = log_softmax.max;
  normalizers[2 * n + 1] = log_softmax.log_sum;
  predictions[n] = static_cast<std::int32_t>(best[1]);
  row_losses[n] = -static_cast<double>(log_softmax(label_logit));
}

template <class T>
__global__ void class_slice_grad_kernel(int count, int width, int first, const T* grad_loss, const T* logits,
                                        const std::int32_t* labels, const T* normalizers, T factor, T* grad_logits) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int n = at / width;
    const LogSoftmax<T> log_softmax{normalizers[2 * n], T{0}, normalizers[2 * n + 1]};
    const T weight = factor * *grad_loss;
    const T scaled = weight * exp(log_softmax(logits[at]));
    grad_logits[at] = first + at % width == labels[n] ? scaled - weight : scaled;
  }
}

/// Block b sums the elements from b kThreads + thread on, in steps of the total number of threads.
template <class T>
__global__ void squared_error_kernel(const T* a, const T* b, long long count, double* parts) {
  using Reduction = BlockReduction<double, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  double sum = 0;
  for (long long i = element(); i < count; i += static_cast<long long>(gridDim.x) * kThreads) {
    const double difference = static_cast<double>(a[i] - b[i]);
    sum += difference * difference;
  }
  sum = reduce_block(reduction, sum, Sum{});
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
  }
}

template <class T>
__global__ void squared_error_grad_kernel(long long count, const T* grad_loss, const T* a, const T* b, T factor,
                                          T* grad_a) {
  const long long i = element();
  if (i < count) {
    grad_a[i] = factor * *grad_loss * (a[i] - b[i]);
  }
}

namespace {

void cross_entropy(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss, Tensor& probabilities) {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    to_int(logits.numel());
    const cudaStream_t stream = compute_stream(logits.device());
    const int rows = to_int(logits.size(0));
    const int classes = to_int(logits.size(1));
    Workspace<double> row_losses(rows, logits.device());
    with_threads_for(rows, classes, [&]<int kRowThreads>(unsigned blocks) {
      launch(cross_entropy_kernel<kRowThreads, T>, blocks, kRowBlockThreads, 0, stream, rows, classes, logits.data<T>(),
             labels.data<std::int32_t>(), row_losses.data(), probabilities.mutable_data<T>());
    });
    launch(sum_up<T>, 1, kThreads, 0, stream, row_losses.data(), rows, factor, loss.mutable_data<T>());
  });
}

void cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels, double factor,
                        Tensor& grad_logits) {
  dispatch_floating(probabilities.dtype(), "cross_entropy_grad", [&]<class T>() {
    launch_elements(probabilities.device(), cross_entropy_grad_kernel<T>, to_int(probabilities.numel()),
                    to_int(probabilities.size(1)), grad_loss.data<T>(), probabilities.data<T>(),
                    labels.data<std::int32_t>(), static_cast<T>(factor), grad_logits.mutable_data<T>());
  });
}

void class_statistics(const Tensor& logits, const Tensor& labels, std::int64_t first, std::int64_t classes,
                      Tensor& statistics) {
  dispatch_floating(logits.dtype(), "class_statistics", [&]<class T>() {
    to_int(logits.numel());
    const int rows = to_int(logits.size(0));
    const int width = to_int(logits.size(1));
    with_threads_for(rows, width, [&]<int kRowThreads>(unsigned blocks) {
      launch(class_statistics_kernel<kRowThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(logits.device()),
             rows, width, to_int(first), to_int(classes), logits.data<T>(), labels.data<std::int32_t>(),
             statistics.mutable_data<T>());
    });
  });
}

void combined_cross_entropy(const Tensor& statistics, double factor, Tensor& loss, Tensor& normalizers,
                            Tensor& predictions) {
  dispatch_floating(statistics.dtype(), "combined_cross_entropy", [&]<class T>() {
    const Device device = statistics.device();
    const int samples = to_int(statistics.size(1));
    Workspace<double> row_losses(samples, device);
    launch_elements(device, combined_cross_entropy_kernel<T>, samples, to_int(statistics.size(0)), statistics.data<T>(),
                    row_losses.data(), normalizers.mutable_data<T>(), predictions.mutable_data<std::int32_t>());
    launch(sum_up<T>, 1, kThreads, 0, compute_stream(device), row_losses.data(), samples, factor,
           loss.mutable_data<T>());
  });
}

void class_slice_grad(const Tensor& grad_loss, const Tensor& logits, const Tensor& labels, const Tensor& normalizers,
                      std::int64_t first, double factor, Tensor& grad_logits) {
  dispatch_floating(logits.dtype(), "class_slice_grad", [&]<class T>() {
    launch_elements(logits.device(), class_slice_grad_kernel<T>, to_int(logits.numel()), to_int(logits.size(1)),
                    to_int(first), grad_loss.data<T>(), logits.data<T>(), labels.data<std::int32_t>(),
                    normalizers.data<T>(), static_cast<T>(factor), grad_logits.mutable_data<T>());
  });
}

/// Returns the number of parts into which a sum is divided: each is summed by a block.
int parts_of(std::int64_t count) {
  constexpr std::int64_t kMinPart = 8 * kThreads;
  return static_cast<int>(std::clamp<std::int64_t>(count / kMinPart, 1, 256));
}

void squared_error(const Tensor& a, const Tensor& b, double factor, Tensor& loss) {
  dispatch_floating(a.dtype(), "squared_error", [&]<class T>() {
    const cudaStream_t stream = compute_stream(a.device());
    const int parts = parts_of(a.numel());
    Workspace<double> sums(parts, a.device());
    launch(squared_error_kernel<T>, static_cast<unsigned>(parts), kThreads, 0, stream, a.data<T>(), b.data<T>(),
           a.numel(), sums.data());
    launch(sum_up<T>, 1, kThreads, 0, stream, sums.data(), parts, factor, loss.mutable_data<T>());
  });
}

void squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor, Tensor& grad_a) {
  dispatch_floating(a.dtype(), "squared_error_grad", [&]<class T>() {
    launch_elements(a.device(), squared_error_grad_kernel<T>, a.numel(), grad_loss.data<T>(), a.data<T>(), b.data<T>(),
                    static_cast<T>(2 * factor), grad_a.mutable_data<T>());
  });
}

}  // namespace

void add_losses(Kernels& table) {
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
  table.class_statistics = class_statistics;
  table.combined_cross_entropy = combined_cross_entropy;
  table.class_slice_grad = class_slice_grad;
  table.squared_error = squared_error;
  table.squared_error_grad = squared_error_grad;
}

}  // namespace stagecoach::cuda
