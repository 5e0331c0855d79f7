/// @file
/// Losses. Rows are worked on apart; then one block adds them up, in double and in a fixed order.

#include <algorithm>

#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

/// out = factor * the sum of values, by one block.
template <class T>
__global__ void sum_up(const double* values, int count, double factor, T* out) {
  wait_for_earlier_kernels();
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
  wait_for_earlier_kernels();
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
void cross_entropy(cudaStream_t stream, int rows, int classes, const T* logits, const std::int32_t* labels,
                   double factor, double* row_losses, T* loss, T* probabilities) {
  if (rows > 0) {
    with_threads_for(classes, [&]<int kRowThreads>() {
      launch(cross_entropy_kernel<kRowThreads, T>, static_cast<unsigned>(rows), kRowThreads, 0, stream, classes, logits,
             labels, row_losses, probabilities);
    });
  }
  launch(sum_up<T>, 1, kThreads, 0, stream, row_losses, rows, factor, loss);
}

template <class T>
__global__ void cross_entropy_grad_kernel(int count, int classes, const T* grad_loss, const T* probabilities,
                                          const std::int32_t* labels, T factor, T* grad_logits) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at < count) {
    const T weight = factor * *grad_loss;
    const T scaled = weight * probabilities[at];
    grad_logits[at] = at % classes == labels[at / classes] ? scaled - weight : scaled;
  }
}

template <class T>
void cross_entropy_grad(cudaStream_t stream, int rows, int classes, const T* grad_loss, const T* probabilities,
                        const std::int32_t* labels, double factor, T* grad_logits) {
  const int count = rows * classes;
  if (count > 0) {
    launch(cross_entropy_grad_kernel<T>, blocks_for(count), kThreads, 0, stream, count, classes, grad_loss,
           probabilities, labels, static_cast<T>(factor), grad_logits);
  }
}

int squared_error_parts(std::int64_t count) {
  constexpr std::int64_t kSmallestPart = 8 * kThreads;
  return static_cast<int>(std::clamp<std::int64_t>(count / kSmallestPart, 1, 256));
}

/// Block b adds up elements b kThreads + thread, and on in steps of all threads.
template <class T>
__global__ void squared_error_kernel(const T* a, const T* b, long long count, double* parts) {
  wait_for_earlier_kernels();
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
void squared_error(cudaStream_t stream, const T* a, const T* b, std::int64_t count, double factor, double* parts,
                   T* loss) {
  const int blocks = squared_error_parts(count);
  launch(squared_error_kernel<T>, static_cast<unsigned>(blocks), kThreads, 0, stream, a, b, count, parts);
  launch(sum_up<T>, 1, kThreads, 0, stream, parts, blocks, factor, loss);
}

#define STAGECOACH_INSTANTIATE(T)                                                                                   \
  template void cross_entropy<T>(cudaStream_t, int, int, const T*, const std::int32_t*, double, double*, T*, T*);   \
  template void cross_entropy_grad<T>(cudaStream_t, int, int, const T*, const T*, const std::int32_t*, double, T*); \
  template void squared_error<T>(cudaStream_t, const T*, const T*, std::int64_t, double, double*, T*);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
