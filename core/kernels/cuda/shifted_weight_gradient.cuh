#pragma once
/// @file
/// The gradient of the weight of a convolution with 3 x 3 taps, on the tensor cores of compute capability 9.0, in TF32.
/// As in shifted_conv2d.cuh a tap is a shift of the pixels in shared memory. K is now the pixels, and the four numbers
/// that a tensor core wants to be adjacent along K are the same pixel of four samples: so a shift along a line shifts
/// whole rows of core matrices. Adjacent columns are the channels of a pixel, then those of the next pixel: one
/// instruction multiplies by the channels of three adjacent pixels, the taps of a row.
///
///   grad_weight[o, c, i, j] = sum over n, p, q of grad_y[n, o, p, q] x[n, c, p stride + i - 1, q stride + j - 1]
///
/// A block computes 64 outputs by 64 channels by all taps, a warpgroup for each row of taps. It goes down the lines of
/// grad_y and keeps the last lines of x in shared memory, a ring, so that it loads each line once.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

struct ShiftedGradient {
  const float* grad_y;  ///< [N, O, P, Q]
  const float* x;       ///< [N, C, H, W], where W = Q stride
  float* sums;          ///< [splits, 3, 3, O, C]
  int samples;
  int outputs;   ///< O, a multiple of 64
  int channels;  ///< C, a multiple of 64
  int rows;      ///< P
  int height;    ///< H
  int lines;     ///< (P + 1) per group of samples: those of grad_y, each group after a line that does not exist
  int lines_per_split;
};

/// Lines of kColumns outputs. What is in shared memory at a time is of kGroups times 4 samples.
template <int kColumns_, int kGroups_, int kStride_>
struct GradientLines {
  static constexpr int kColumns = kColumns_;
  static constexpr int kGroups = kGroups_;
  static constexpr int kStride = kStride_;
  static constexpr int kWidth = kColumns * kStride;  // of a line of x
  static constexpr int kPixels = kColumns * kGroups;
  static constexpr int kPadded = kWidth + 2;  // with a zero at each end
  static constexpr int kSamples = kCoreK * kGroups;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kRing = 3 + kStride;         // lines of x: three that are multiplied, and the next ones
  static constexpr int kWarmUp = 3 - kStride;       // steps that load the lines above the first one
  static constexpr int kPixelFloats = 64 * kCoreK;  // 64 channels of a pixel, of four samples each
};

template <class Lines>
struct alignas(128) GradientShared {
  float x[Lines::kRing][Lines::kGroups][Lines::kPadded][64][kCoreK];  // rounded to TF32
  float grad_y[2][Lines::kPixels][64][kCoreK];
};

/// A thread's part of loading lines of kWidth pixels: vectors of four adjacent pixels of a channel, of four samples
/// each. A warp loads eight channels of four vectors each. In shared memory kPadded pixels are between groups, from
/// kFirst on.
template <class Lines, int kWidth, int kPadded, int kFirst>
class LineLoader {
 public:
  /// Loads from `data` [samples, channels, rows, kWidth]: 64 channels from `first` on.
  __device__ LineLoader(const float* data, int channels, int first, int rows, int samples)
      : data_(data + static_cast<long long>(first) * rows * kWidth),
        stride_(channels * rows * kWidth),
        plane_(rows * kWidth),
        samples_(samples) {}

  /// Loads row `row` of the samples from `sample` on into registers; the thread continues while the values arrive.
  __device__ void load(int sample, int row) {
    const bool exists = sample >= 0 && row >= 0 && row * kWidth < plane_;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int group_sample = sample + quad(i) * 4 / kWidth * kCoreK;
      const float* from = data_ + static_cast<long long>(group_sample) * stride_ + channel(i) * plane_ + row * kWidth +
                          quad(i) * 4 % kWidth;
#pragma unroll
      for (int s = 0; s < kCoreK; ++s) {
        values_[i][s] = predicated_load(exists && number(i) < kVectors && group_sample + s < samples_,
                                        reinterpret_cast<const Four*>(from + s * stride_), Four{});
      }
    }
  }
  /// Stores the registers in shared memory, transposed and rounded to TF32.
  __device__ void put(float* to) const {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int pixel = quad(i) * 4 / kWidth * kPadded + quad(i) * 4 % kWidth + kFirst;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (number(i) < kVectors) {
          *reinterpret_cast<Vector<std::uint32_t, kCoreK>*>(to + (pixel + k) * Lines::kPixelFloats +
                                                            channel(i) * kCoreK) = {
              {round_to_tf32(values_[i][0].at[k]), round_to_tf32(values_[i][1].at[k]),
               round_to_tf32(values_[i][2].at[k]), round_to_tf32(values_[i][3].at[k])}};
        }
      }
    }
  }

 private:
  using Four = Vector<float, 4>;
  static constexpr int kQuads = kWidth * Lines::kGroups / 4;
  static constexpr int kAdjacent = kQuads < 4 ? kQuads : 4;  // vectors of a channel that a warp loads
  static constexpr int kVectors = 64 * kQuads;
  static constexpr int kSlots = (kVectors + Lines::kThreads - 1) / Lines::kThreads;
  __device__ static int number(int slot) { return static_cast<int>(threadIdx.x) + slot * Lines::kThreads; }
  __device__ static int channel(int slot) { return number(slot) % 8 + number(slot) / (8 * kAdjacent) % 8 * 8; }
  __device__ static int quad(int slot) {
    return number(slot) / 8 % kAdjacent + number(slot) / (64 * kAdjacent) * kAdjacent;
  }

  const float* data_;
  int stride_;  // between samples
  int plane_;   // between channels
  int samples_;
  Four values_[kSlots][kCoreK];
};

/// Sets the pixels at both ends of all lines of x to zero, once: they are never overwritten.
template <class Lines>
__device__ void clear_ends(GradientShared<Lines>& shared) {
  for (int at = static_cast<int>(threadIdx.x); at < Lines::kRing * Lines::kGroups * 2 * 64; at += Lines::kThreads) {
    const int line = at / 128;  // (of the ring, group)
    const int pixel = at / 64 % 2 * (Lines::kPadded - 1);
    *reinterpret_cast<Vector<float, kCoreK>*>(
        shared.x[line / Lines::kGroups][line % Lines::kGroups][pixel][at % 64]) = {};
  }
}

/// Starts to add the products of a line of grad_y and a line of x.
template <class Lines>
__device__ __forceinline__ void start_line(float (&sums)[96], StridedFactor a, StridedFactor b) {
  begin_products();
#pragma unroll
  for (int pixel = 0; pixel < Lines::kPixels; pixel += 2) {
    const int in_x = pixel / Lines::kColumns * Lines::kPadded + pixel % Lines::kColumns * Lines::kStride;
    start_product(sums, a + pixel * Lines::kPixelFloats, b + in_x * Lines::kPixelFloats);
  }
  end_products();
}

/// Stores a warpgroup's sums: 64 outputs by three taps by 64 channels, in `out` [3, O, C] from the block's first on.
__device__ inline void store_taps(const ShiftedGradient& g, float* out, const float (&sums)[96]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  out += (16 * warp + lane / 4) * g.channels + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 24; ++i) {
    float* to = out + static_cast<long long>(i / 8) * g.outputs * g.channels + i % 8 * 8;
    *reinterpret_cast<Vector2<float>*>(to) = {{sums[4 * i], sums[4 * i + 1]}};
    *reinterpret_cast<Vector2<float>*>(to + 8 * g.channels) = {{sums[4 * i + 2], sums[4 * i + 3]}};
  }
}

/// Grid: (O / 64 * C / 64, splits).
template <class Lines>
__global__ void __launch_bounds__(Lines::kThreads, 1) shifted_weight_gradient(ShiftedGradient g) {
  STAGECOACH_DYNAMIC_SHARED(GradientShared<Lines>, shared);
  constexpr int kStride = Lines::kStride;
  const int output = static_cast<int>(blockIdx.x) % (g.outputs / 64) * 64;
  const int channel = static_cast<int>(blockIdx.x) / (g.outputs / 64) * 64;
  const int begin = static_cast<int>(blockIdx.y) * g.lines_per_split;
  const int end = begin + g.lines_per_split < g.lines ? begin + g.lines_per_split : g.lines;
  const int tap_row = static_cast<int>(threadIdx.x) / kWarpgroup;
  constexpr int kAlongRows = kCoreRows * kCoreK;
  const StridedFactor a = strided_factor(shared.grad_y[0][0][0], Lines::kPixelFloats, kAlongRows);
  const StridedFactor b = strided_factor(shared.x[0][0][0][0], kStride * Lines::kPixelFloats, kAlongRows);

  clear_ends<Lines>(shared);
  LineLoader<Lines, Lines::kWidth, Lines::kPadded, 1> x(g.x, g.channels, channel, g.height, g.samples);
  LineLoader<Lines, Lines::kColumns, Lines::kColumns, 0> grad_y(g.grad_y, g.outputs, output, g.rows, g.samples);
  float sums[96] = {};
  // A step is a line of grad_y: (image, row), where row -1 does not exist. It needs rows row stride - 1 to row stride +
  // 1 of x.
  int line = begin + g.rows + 1 - Lines::kWarmUp;  // of the group before, so that no dividend is negative
  int image = line / (g.rows + 1) - 1;
  int row = line % (g.rows + 1) - 1;
  x.load(image * Lines::kSamples, row * kStride + 2 - kStride);
  int ring = 0;  // the next line of x is stored there
  for (int step = 0; step < end - begin + Lines::kWarmUp; ++step) {
#pragma unroll
    for (int i = 0; i < kStride; ++i) {
      x.put(shared.x[ring][0][0][0]);
      ring = ring == Lines::kRing - 1 ? 0 : ring + 1;
      if (i < kStride - 1) {
        x.load(image * Lines::kSamples, row * kStride + 1);
      }
    }
    grad_y.load(image * Lines::kSamples, row);
    grad_y.put(shared.grad_y[step % 2][0][0]);
    publish_to_tensor_cores();
    wait_for_products();  // of the line before, whose memory the next steps overwrite
    __syncthreads();      // the lines are complete, and no warpgroup reads the ones that are filled next
    if (step >= Lines::kWarmUp && row >= 0) {
      const int first = ring + Lines::kRing - 3 + tap_row;  // of the last three lines
      const int ring_line = first < Lines::kRing ? first : first - Lines::kRing;
      start_line<Lines>(sums, a + step % 2 * Lines::kPixels * Lines::kPixelFloats,
                        b + ring_line * Lines::kGroups * Lines::kPadded * Lines::kPixelFloats);
    }
    image += row == g.rows - 1 ? 1 : 0;
    row = row == g.rows - 1 ? -1 : row + 1;
    x.load(image * Lines::kSamples, row * kStride + 2 - kStride);
  }
  wait_for_products();
  const long long results = static_cast<long long>(blockIdx.y) * 9 + tap_row * 3;  // of O x C each
  store_taps(g, g.sums + results * g.outputs * g.channels + output * g.channels + channel, sums);
}

// ---- The sum of the splits

inline constexpr int kTapColumns = 32;  ///< adjacent channels, which a warp loads together
inline constexpr int kMaxTapRows = 16;  ///< warps of a block

struct TapSums {
  float at[kMaxTapRows][kTapColumns * 9];  // [channel][tap]
};

/// weight [O, C, 3, 3] = the sum of the splits of sums [splits, 3, 3, O, C], in an order that depends only on their
/// number. A block for one output and kTapColumns channels, whose taps it stores as one piece.
static __global__ void __launch_bounds__(kTapColumns* kMaxTapRows)
    sum_tap_splits(const float* sums, int splits, int outputs, int channels, float* weight) {
  STAGECOACH_SHARED(TapSums, parts);
  const int x = static_cast<int>(threadIdx.x) % kTapColumns;
  const int y = static_cast<int>(threadIdx.x) / kTapColumns;
  const int rows = static_cast<int>(blockDim.x) / kTapColumns;
  const int first = static_cast<int>(blockIdx.x) * kTapColumns;  // (output, channel)
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
  for (int at = static_cast<int>(threadIdx.x); at < kTapColumns * 9; at += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      sum += parts.at[row][at];
    }
    weight[first * 9 + at] = sum;
  }
}

}  // namespace stagecoach::cuda
