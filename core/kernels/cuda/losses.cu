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
__global__ void cross_entropy_kernel(int classes, const T* logits, const std::int32_t* labels, double* row_losses,
                                     T* probabilities) {
  using Reduction = BlockReduction<T, kRowThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const long long start = static_cast<long long>(blockIdx.x) * classes;
  const LogSoftmax<T> log_softmax = log_softmax_of<kRowThreads>(reduction, logits + start, classes);
  for (int c = static_cast<int>(threadIdx.x); c < classes; c += kRowThreads) {
    probabilities[start + c] = exp(log_softmax(logits[start + c]));
  }
  if (threadIdx.x == 0) {
    const std::int32_t label = labels[blockIdx.x];
    const bool is_class = label >= 0 && label < classes;
    row_losses[blockIdx.x] = is_class ? -static_cast<double>(log_softmax(logits[start + label])) : nan("");
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
    if (rows > 0) {
      with_threads_for(classes, [&]<int kRowThreads>() {
        launch(cross_entropy_kernel<kRowThreads, T>, static_cast<unsigned>(rows), kRowThreads, 0, stream, classes,
               logits.data<T>(), labels.data<std::int32_t>(), row_losses.data(), probabilities.mutable_data<T>());
      });
    }
    launch(sum_up<T>, 1, kThreads, 0, stream, row_losses.data(), rows, factor, loss.mutable_data<T>());
  });
}

void cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels, double factor,
                        Tensor& grad_logits) {
  dispatch_floating(probabilities.dtype(), "cross_entropy_grad", [&]<class T>() {
    const int count = to_int(probabilities.numel());
    if (count > 0) {
      launch(cross_entropy_grad_kernel<T>, blocks_for(count), kThreads, 0, compute_stream(probabilities.device()),
             count, to_int(probabilities.size(1)), grad_loss.data<T>(), probabilities.data<T>(),
             labels.data<std::int32_t>(), static_cast<T>(factor), grad_logits.mutable_data<T>());
    }
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
    if (a.numel() > 0) {
      launch(squared_error_grad_kernel<T>, blocks_for(a.numel()), kThreads, 0, compute_stream(a.device()), a.numel(),
             grad_loss.data<T>(), a.data<T>(), b.data<T>(), static_cast<T>(2 * factor), grad_a.mutable_data<T>());
    }
  });
}

}  // namespace

void add_losses(Kernels& table) {
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
  table.squared_error = squared_error;
  table.squared_error_grad = squared_error_grad;
}

}  // namespace stagecoach::cuda
