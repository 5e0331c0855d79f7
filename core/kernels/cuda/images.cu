/// @file
/// Gathers and normalises images, and counts correct predictions.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// pixel * factor + shift is (pixel / 255 - mean) / deviation.
struct ChannelScale {
  float factor[3];
  float shift[3];
};

__global__ void normalize_kernel(int count, FastDivmod plane, ChannelScale scale, const std::uint8_t* pixels,
                                 float* out) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int channel = plane.quotient(at) % 3;
    out[at] = static_cast<float>(pixels[at]) * scale.factor[channel] + scale.shift[channel];
  }
}

/// A thread per element; T is the type of the elements or another of its size.
template <class T>
__global__ void gather_kernel(int count, FastDivmod sample, FastDivmod height, FastDivmod width, const T* rows,
                              const std::int32_t* crops, T* out) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int n = sample.quotient(at);
    const std::int32_t* crop = crops + 4 * n;  // (row, down, right, mirrored)
    const int line = width.quotient(sample.remainder(at, n));
    const int x = width.remainder(sample.remainder(at, n), line);
    const int y = height.remainder(line, height.quotient(line)) + crop[1];
    const int column = (crop[3] != 0 ? width.value() - 1 - x : x) + crop[2];
    const bool is_inside = y >= 0 && y < height.value() && column >= 0 && column < width.value();
    out[at] = is_inside
                  ? rows[static_cast<long long>(crop[0]) * sample.value() + (line + crop[1]) * width.value() + column]
                  : T(0);
  }
}

template <int kRowThreads, class T>
__global__ void count_correct_kernel(int rows, int classes, const T* logits, const std::int32_t* labels,
                                     std::int32_t* count) {
  using Reduction = RowReduction<T, kRowThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  using IndexReduction = RowReduction<int, kRowThreads>;
  STAGECOACH_SHARED(IndexReduction, index_reduction);
  const auto [row, thread] = RowThread<kRowThreads>();
  if (row >= rows) {
    return;
  }
  const T* values = logits + static_cast<long long>(row) * classes;
  const T max = max_of_row<kRowThreads>(reduction, thread, values, classes);
  const int best = find_in_row<kRowThreads>(index_reduction, thread, values, classes, max);
  if (thread == 0 && best == labels[row]) {
    atomicAdd(count, 1);  // of integers: in any order
  }
}

/// Runs as one block.
__global__ void count_equal_kernel(int elements, const std::int32_t* a, const std::int32_t* b, std::int32_t* count) {
  using Reduction = BlockReduction<std::int32_t, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  std::int32_t equal = 0;
  for (int n = static_cast<int>(threadIdx.x); n < elements; n += kThreads) {
    equal += a[n] == b[n] ? 1 : 0;
  }
  equal = reduce_block(reduction, equal, Sum{});
  if (threadIdx.x == 0) {
    *count += equal;
  }
}

namespace {

void normalize(const Tensor& images, const Normalization& normalization, Tensor& out) {
  ChannelScale scale;
  for (std::size_t c = 0; c < 3; ++c) {
    scale.factor[c] = 1 / (255 * normalization.deviation[c]);
    scale.shift[c] = -normalization.mean[c] / normalization.deviation[c];
  }
  const FastDivmod plane(to_int(images.size(2) * images.size(3)));
  launch_elements(images.device(), normalize_kernel, to_int(images.numel()), plane, scale, images.data<std::uint8_t>(),
                  out.mutable_data<float>());
}

template <class T>
void gather_as(const Tensor& rows, const Tensor& crops, Tensor& out) {
  const FastDivmod sample(to_int(rows.shape().product(1, 4)));
  launch_elements(out.device(), gather_kernel<T>, to_int(out.numel()), sample, FastDivmod(to_int(rows.size(2))),
                  FastDivmod(to_int(rows.size(3))), static_cast<const T*>(rows.raw_data()), crops.data<std::int32_t>(),
                  static_cast<T*>(out.raw_mutable_data()));
}

void gather(const Tensor& rows, const Tensor& crops, Tensor& out) {
  const std::size_t size = size_of(rows.dtype());
  if (size == 1) {
    gather_as<std::uint8_t>(rows, crops, out);
  } else if (size == 4) {
    gather_as<std::uint32_t>(rows, crops, out);
  } else {
    gather_as<std::uint64_t>(rows, crops, out);
  }
}

void count_correct(const Tensor& logits, const Tensor& labels, Tensor& count) {
  dispatch_floating(logits.dtype(), "count_correct", [&]<class T>() {
    const int rows = to_int(logits.size(0));
    const int classes = to_int(logits.size(1));
    with_threads_for(rows, classes, [&]<int kRowThreads>(unsigned blocks) {
      launch(count_correct_kernel<kRowThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(logits.device()), rows,
             classes, logits.data<T>(), labels.data<std::int32_t>(), count.mutable_data<std::int32_t>());
    });
  });
}

void count_equal(const Tensor& a, const Tensor& b, Tensor& count) {
  launch(count_equal_kernel, 1, kThreads, 0, compute_stream(a.device()), to_int(a.numel()), a.data<std::int32_t>(),
         b.data<std::int32_t>(), count.mutable_data<std::int32_t>());
}

}  // namespace

void add_images(Kernels& table) {
  table.normalize = normalize;
  table.gather = gather;
  table.count_correct = count_correct;
  table.count_equal = count_equal;
}

}  // namespace stagecoach::cuda
