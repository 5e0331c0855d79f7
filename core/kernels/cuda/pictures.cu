/// @file
/// Pictures in and answers out.

#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/divisor.cuh"
#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

/// pixel * factor + shift is (pixel / 255 - mean) / deviation.
struct ChannelScale {
  float factor[3];
  float shift[3];
};

__global__ void normalize_kernel(int count, Divisor plane, ChannelScale scale, const std::uint8_t* pixels, float* out) {
  wait_for_earlier_kernels();
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int channel = plane.quotient(at) % 3;
    out[at] = static_cast<float>(pixels[at]) * scale.factor[channel] + scale.shift[channel];
  }
}

void normalize(cudaStream_t stream, int samples, int plane, const std::uint8_t* pixels,
               const Normalization& normalization, float* out) {
  ChannelScale scale;
  for (std::size_t c = 0; c < 3; ++c) {
    scale.factor[c] = 1 / (255 * normalization.deviation[c]);
    scale.shift[c] = -normalization.mean[c] / normalization.deviation[c];
  }
  const int count = samples * 3 * plane;
  if (count > 0) {
    launch(normalize_kernel, blocks_for(count), kThreads, 0, stream, count, Divisor(plane), scale, pixels, out);
  }
}

/// One block: a thread looks at every kThreads-th row.
template <class T>
__global__ void count_correct_kernel(int rows, int classes, const T* scores, const std::int32_t* labels,
                                     std::int32_t* count) {
  wait_for_earlier_kernels();
  using Reduction = BlockReduction<std::int32_t, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  std::int32_t correct = 0;
  for (int n = static_cast<int>(threadIdx.x); n < rows; n += kThreads) {
    const T* row = scores + static_cast<long long>(n) * classes;
    int best = 0;
    for (int c = 1; c < classes; ++c) {
      best = row[best] < row[c] ? c : best;
    }
    correct += best == labels[n] ? 1 : 0;
  }
  correct = reduce_block(reduction, correct, Sum{});
  if (threadIdx.x == 0) {
    *count += correct;
  }
}

template <class T>
void count_correct(cudaStream_t stream, int rows, int classes, const T* scores, const std::int32_t* labels,
                   std::int32_t* count) {
  launch(count_correct_kernel<T>, 1, kThreads, 0, stream, rows, classes, scores, labels, count);
}

template void count_correct<float>(cudaStream_t, int, int, const float*, const std::int32_t*, std::int32_t*);
template void count_correct<double>(cudaStream_t, int, int, const double*, const std::int32_t*, std::int32_t*);

}  // namespace stagecoach::cuda
