#pragma once
/// @file
/// The gradient of the weight of a convolution with 3 x 3 taps, on the tensor cores of compute capability 9.0, in TF32.
/// As in shifted_conv2d.cuh a tap is a shift of the pixels in shared memory. K is now the pixels, and the four numbers
/// that a tensor core wants to be adjacent along K are the same pixel of four samples: so a shift along a line shifts
/// whole rows of core matrices. Adjacent columns are the channels of a pixel, then those of the next pixel: one
/// instruction multiplies by the channels of three adjacent pixels, the taps of a row.
///
///   grad_weight[o, c, i, j] = sum over n, h, w of grad_y[n, o, h, w] x[n, c, h + i - 1, w + j - 1]
///
/// A block computes 64 outputs by 64 channels by all taps, a warpgroup for each row of taps. It goes down the lines of
/// the images: each line of x is loaded once, into one of four lines in shared memory, and is used with three lines of
/// grad_y.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/matrix_product.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

inline constexpr int kTaps = 3;  ///< per row

struct ShiftedGradient {
  const float* grad_y;  ///< [N, O, H, W]
  const float* x;       ///< [N, C, H, W]
  float* sums;          ///< [splits, 3, 3, O, C]
  int samples;
  int outputs;   ///< O, a multiple of 64
  int channels;  ///< C, a multiple of 64
  int height;
  int lines;  ///< (H + 1) per group of samples: those of the images, each after a line that does not exist
  int lines_per_split;
  FastDivmod by_image;  // H + 1
};

/// Lines of kWidth pixels. A stage holds those of kGroups times 4 samples.
template <int kWidth_, int kGroups_>
struct GradientLines {
  static constexpr int kWidth = kWidth_;
  static constexpr int kGroups = kGroups_;
  static constexpr int kPixels = kWidth * kGroups;        // of a line of grad_y
  static constexpr int kPadded = (kWidth + 2) * kGroups;  // of a line of x, with a zero at each end
  static constexpr int kSamples = kCoreK * kGroups;       // of a line
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kVectors = 64 * kPixels / 4;  // of four pixels and four samples, in a line of grad_y or x
  static constexpr int kSlots = (2 * kVectors + kThreads - 1) / kThreads;
  static constexpr int kRing = 4;
};

template <class Lines>
struct alignas(128) GradientShared {
  float x[Lines::kRing][Lines::kPadded][64][kCoreK];  // [pixel][channel][sample], rounded to TF32
  float grad_y[2][Lines::kPixels][64][kCoreK];        // [pixel][output][sample]
};

/// A thread's part of loading a line of grad_y and the next one of x: vectors of four adjacent pixels of a channel, of
/// four samples each. Those of grad_y come first. A warp loads eight channels of four vectors each.
template <class Lines>
class LineLoader {
 public:
  __device__ LineLoader(const ShiftedGradient& g, int output, int channel) {
#pragma unroll
    for (int i = 0; i < Lines::kSlots; ++i) {
      const int at = number(i) % Lines::kVectors;
      const int c = at % 8 + at / 32 % 8 * 8;
      const int pixel = (at / 8 % 4 + at / 256 * 4) * 4;
      const int column = pixel % Lines::kWidth;
      group_[i] = pixel / Lines::kWidth;
      from_[i] = (c + (is_x(i) ? channel : output)) * g.height * Lines::kWidth + column;
      to_[i] = ((is_x(i) ? group_[i] * (Lines::kWidth + 2) + 1 + column : pixel) * 64 + c) * kCoreK;
    }
  }
  /// Loads line `line` of grad_y, and line + 1 of x, into registers; the thread continues while the values arrive.
  __device__ void load(const ShiftedGradient& g, int line) {
#pragma unroll
    for (int i = 0; i < Lines::kSlots; ++i) {
      const int at = line + (is_x(i) ? 1 : 0);
      const int image = g.by_image.quotient(at < 0 ? 0 : at);
      const int row = g.by_image.remainder(at, image) - 1;
      const int sample = image * Lines::kSamples + group_[i] * kCoreK;
      const int stride = (is_x(i) ? g.channels : g.outputs) * g.height * Lines::kWidth;
      const float* from = (is_x(i) ? g.x : g.grad_y) + (sample * stride + from_[i] + row * Lines::kWidth);
      const int count = row >= 0 && exists(i) ? g.samples - sample : 0;
#pragma unroll
      for (int s = 0; s < kCoreK; ++s) {
        values_[i][s] = predicated_load(s < count, reinterpret_cast<const Four*>(from + s * stride), Four{});
      }
    }
  }
  /// Stores the registers in shared memory, transposed and rounded to TF32.
  __device__ void put(float* x, float* grad_y) const {
#pragma unroll
    for (int i = 0; i < Lines::kSlots; ++i) {
      float* to = (is_x(i) ? x : grad_y) + to_[i];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (exists(i)) {
          *reinterpret_cast<Vector<std::uint32_t, kCoreK>*>(to + k * 64 * kCoreK) = {
              {round_to_tf32(values_[i][0].at[k]), round_to_tf32(values_[i][1].at[k]),
               round_to_tf32(values_[i][2].at[k]), round_to_tf32(values_[i][3].at[k])}};
        }
      }
    }
  }

 private:
  using Four = Vector<float, 4>;
  __device__ static int number(int slot) { return static_cast<int>(threadIdx.x) + slot * Lines::kThreads; }
  __device__ static bool is_x(int slot) { return number(slot) >= Lines::kVectors; }
  __device__ static bool exists(int slot) { return number(slot) < 2 * Lines::kVectors; }

  int group_[Lines::kSlots];
  int from_[Lines::kSlots];
  int to_[Lines::kSlots];
  Four values_[Lines::kSlots][kCoreK];
};

/// Sets the pixels at both ends of all lines of x to zero, once: they are never overwritten.
template <class Lines>
__device__ void clear_ends(GradientShared<Lines>& shared) {
  for (int at = static_cast<int>(threadIdx.x); at < Lines::kRing * Lines::kGroups * 2 * 64; at += Lines::kThreads) {
    const int c = at % 64;
    const int end = at / 64 % 2;
    const int group = at / 128 % Lines::kGroups;
    const int pixel = group * (Lines::kWidth + 2) + end * (Lines::kWidth + 1);
    *reinterpret_cast<Vector<float, kCoreK>*>(shared.x[at / 128 / Lines::kGroups][pixel][c]) = {};
  }
}

/// Starts to add the products of a line of grad_y and a line of x.
template <class Lines>
__device__ __forceinline__ void start_line(float (&sums)[96], StridedFactor a, StridedFactor b) {
  begin_products();
#pragma unroll
  for (int pixel = 0; pixel < Lines::kPixels; pixel += 2) {
    const int in_x = pixel / Lines::kWidth * (Lines::kWidth + 2) + pixel % Lines::kWidth;
    start_product(sums, a + pixel * 64 * kCoreK, b + in_x * 64 * kCoreK);
  }
  end_products();
}

/// Stores a warpgroup's sums: 64 outputs by three taps by 64 channels, in `sums` [3, O, C] from the block's first on.
__device__ inline void store_taps(const ShiftedGradient& g, float* out, const float (&sums)[96]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  out += (16 * warp + lane / 4) * g.channels + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    float* to = out + i / 8 * g.outputs * g.channels + i % 8 * 8;
    *reinterpret_cast<Vector2<float>*>(to) = {{sums[4 * i], sums[4 * i + 1]}};
    *reinterpret_cast<Vector2<float>*>(to + 8 * g.channels) = {{sums[4 * i + 2], sums[4 * i + 3]}};
  }
}

/// Grid: (O / 64 * C / 64, splits).
template <class Lines>
__global__ void __launch_bounds__(Lines::kThreads, 1) shifted_weight_gradient(ShiftedGradient g) {
  STAGECOACH_DYNAMIC_SHARED(GradientShared<Lines>, shared);
  const int output = static_cast<int>(blockIdx.x) % (g.outputs / 64) * 64;
  const int channel = static_cast<int>(blockIdx.x) / (g.outputs / 64) * 64;
  const int begin = static_cast<int>(blockIdx.y) * g.lines_per_split;
  const int end = begin + g.lines_per_split < g.lines ? begin + g.lines_per_split : g.lines;
  const int tap_row = static_cast<int>(threadIdx.x) / kWarpgroup;
  constexpr int kAlongK = 64 * kCoreK;
  constexpr int kAlongRows = kCoreRows * kCoreK;
  const StridedFactor a = strided_factor(shared.grad_y[0][0][0], kAlongK, kAlongRows);
  const StridedFactor b = strided_factor(shared.x[0][0][0], kAlongK, kAlongRows);

  clear_ends<Lines>(shared);
  LineLoader<Lines> loader(g, output, channel);
  loader.load(g, begin - 2);
  float sums[96] = {};
  // Line `line` of grad_y needs lines line - 1 to line + 1 of x, so the first two steps only load.
  for (int step = 0; step < end - begin + 2; ++step) {
    const int line = begin - 2 + step;
    loader.put(shared.x[step % Lines::kRing][0][0], shared.grad_y[step % 2][0][0]);
    publish_to_tensor_cores();
    wait_for_products();  // of the line before, whose memory the next steps overwrite
    __syncthreads();      // the lines are complete, and no warpgroup reads the ones that are filled next
    const bool exists = step >= 2 && g.by_image.remainder(line, g.by_image.quotient(line)) != 0;
    if (exists) {
      start_line<Lines>(sums, a + step % 2 * Lines::kPixels * 64 * kCoreK,
                        b + (step - 2 + tap_row) % Lines::kRing * Lines::kPadded * 64 * kCoreK);
    }
    loader.load(g, line + 1);
  }
  wait_for_products();
  const long long results = static_cast<long long>(blockIdx.y) * kTaps * 3 + tap_row * kTaps;  // of O x C each
  store_taps(g, g.sums + results * g.outputs * g.channels + output * g.channels + channel, sums);
}

struct TapSums {
  float at[kSumRows][kSumColumns * 9];  // [channel][tap]
};

/// weight [O, C, 3, 3] = the sum of the splits of sums [splits, 3, 3, O, C], in an order that depends only on their
/// number. A block for one output and kSumColumns channels, whose taps it stores as one piece.
static __global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_tap_splits(const float* sums, int splits, int outputs, int channels, float* weight) {
  STAGECOACH_SHARED(TapSums, parts);
  const int x = static_cast<int>(threadIdx.x) % kSumColumns;
  const int y = static_cast<int>(threadIdx.x) / kSumColumns;
  const int rows = static_cast<int>(blockDim.x) / kSumColumns;
  const int first = static_cast<int>(blockIdx.x) * kSumColumns;  // (output, channel)
  const long long elements = static_cast<long long>(outputs) * channels;
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
    float sum = 0;
#pragma unroll 4
    for (int split = y; split < splits; split += rows) {
      sum += sums[(split * 9 + tap) * elements + first + x];
    }
    parts.at[y][x * 9 + tap] = sum;
  }
  __syncthreads();  // all sums are complete
  for (int at = static_cast<int>(threadIdx.x); at < kSumColumns * 9; at += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      sum += parts.at[row][at];
    }
    weight[first * 9 + at] = sum;
  }
}

}  // namespace stagecoach::cuda
