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
/// grad_y and keeps the last lines of x in shared memory, a ring, so that it loads each line once. A fourth warpgroup
/// does nothing but load: its registers hold the next lines while they arrive, where those of the others are full of
/// sums.

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
  static constexpr int kMultipliers = 3 * kWarpgroup;  // threads, of which the last kWarpgroup more load
  static constexpr int kThreads = kMultipliers + kWarpgroup;
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
/// each. A warp loads eight channels of kAdjacent vectors each, and the warpgroup kChannels of them; a slot is what it
/// loads at once. In shared memory kPadded pixels are between groups, from kFirst on. Addresses are sums of one that
/// the thread keeps and of multiples of the strides: more of them would need the registers of the values.
template <class Lines, int kWidth, int kPadded, int kFirst, int kPortions>
class LineLoader {
 public:
  /// Loads from `data` [samples, channels, rows, kWidth]: 64 channels from `first` on.
  __device__ LineLoader(const float* data, int channels, int first, int rows, int samples)
      : data_(data),
        stride_(channels * rows * kWidth),
        plane_(rows * kWidth),
        samples_(samples),
        from_((first + channel()) * plane_ + quad() * 4 % kWidth + group() * kCoreK * stride_),
        to_((group() * kPadded + quad() * 4 % kWidth + kFirst) * Lines::kPixelFloats + channel() * kCoreK) {}

  /// Loads a portion of row `row` of the samples from `sample` on into registers; the thread continues while the values
  /// arrive.
  __device__ __forceinline__ void load(int sample, int row, int portion = 0) {
    const bool exists = sample >= 0 && row >= 0 && row * kWidth < plane_;
    const int from = from_ + sample * stride_ + row * kWidth;
    const int first_sample = sample + group() * kCoreK;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int slot = portion * kSlots + i;
#pragma unroll
      for (int k = 0; k < kCoreK; ++k) {
        const int more = groups_to(slot) * kCoreK + k;
        const int offset = channels_to(slot) * plane_ + pixels_to(slot) + more * stride_;
        values_[i][k] = predicated_load(exists && first_sample + more < samples_,
                                        reinterpret_cast<const Four*>(data_ + (from + offset)), Four{});
      }
    }
  }
  /// Stores the registers in shared memory, transposed and rounded to TF32.
  __device__ __forceinline__ void put(float* line, int portion = 0) const {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int slot = portion * kSlots + i;
      float* to = line + to_ + channels_to(slot) * kCoreK;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const int pixel = groups_to(slot) * kPadded + pixels_to(slot) + p;
        *reinterpret_cast<Vector<std::uint32_t, kCoreK>*>(to + pixel * Lines::kPixelFloats) = {
            {round_to_tf32(values_[i][0].at[p]), round_to_tf32(values_[i][1].at[p]), round_to_tf32(values_[i][2].at[p]),
             round_to_tf32(values_[i][3].at[p])}};
      }
    }
  }

 private:
  using Four = Vector<float, 4>;
  static constexpr int kQuads = kWidth * Lines::kGroups / 4;
  static constexpr int kAdjacent = kQuads < 4 ? kQuads : 4;
  static constexpr int kChannels = kWarpgroup / kAdjacent;
  static constexpr int kAlong = 64 / kChannels;  // slots for all channels
  static constexpr int kSlots = kQuads / kAdjacent * kAlong / kPortions;
  static_assert(kChannels * kAlong == 64 && kSlots * kPortions * kAdjacent == kQuads * kAlong);

  // Where the vectors of slot 0 are, and the distance to those of another one.
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % kWarpgroup; }
  __device__ static int channel() { return thread() % 8 + thread() / (8 * kAdjacent) * 8; }
  __device__ static int quad() { return thread() / 8 % kAdjacent; }
  __device__ static int group() { return quad() * 4 / kWidth; }
  __device__ static constexpr int channels_to(int slot) { return slot % kAlong * kChannels; }
  __device__ static constexpr int groups_to(int slot) { return slot / kAlong * kAdjacent * 4 / kWidth; }
  __device__ static constexpr int pixels_to(int slot) { return slot / kAlong * kAdjacent * 4 % kWidth; }

  const float* data_;
  int stride_;  // between samples
  int plane_;   // between channels
  int samples_;
  int from_;
  int to_;
  Four values_[kSlots][kCoreK];
};

/// Sets the pixels at both ends of all lines of x to zero, once: they are never overwritten. By one warpgroup.
template <class Lines>
__device__ void clear_ends(GradientShared<Lines>& shared) {
  for (int at = static_cast<int>(threadIdx.x) % kWarpgroup; at < Lines::kRing * Lines::kGroups * 2 * 64;
       at += kWarpgroup) {
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

/// The lines of a block. A step is a line of grad_y: (image, row), where row -1 does not exist. It needs the rows of x
/// from row stride - 1 to row stride + 1. The first steps only load x. At the end of a step all threads of the block
/// meet: then its lines are complete, and so are the products of the step before, whose memory is filled next.
template <class Lines>
struct LinesOfBlock {
  __device__ explicit LinesOfBlock(const ShiftedGradient& g) : rows(g.rows) {
    const int begin = static_cast<int>(blockIdx.y) * g.lines_per_split;
    const int end = begin + g.lines_per_split < g.lines ? begin + g.lines_per_split : g.lines;
    steps = end - begin + Lines::kWarmUp;
    const int line = begin + g.rows + 1 - Lines::kWarmUp;  // of the group before, so that no dividend is negative
    image = line / (g.rows + 1) - 1;
    row = line % (g.rows + 1) - 1;
  }
  __device__ void advance() {
    image += row == rows - 1 ? 1 : 0;
    row = row == rows - 1 ? -1 : row + 1;
  }
  __device__ int sample() const { return image * Lines::kSamples; }
  __device__ int first_row_of_x() const { return row * Lines::kStride + 2 - Lines::kStride; }

  int rows;
  int steps;
  int image;
  int row;
};

__device__ inline int next_line(int ring, int lines, int count) {
  return ring + count >= lines ? ring + count - lines : ring + count;
}

/// The work of the last warpgroup.
template <class Lines>
__device__ void load_lines(const ShiftedGradient& g, int output, int channel, GradientShared<Lines>& shared) {
  constexpr int kStride = Lines::kStride;
  constexpr int kPortions = Lines::kPixels > 16 ? 2 : 1;  // of grad_y: all of it would need too many registers
  clear_ends<Lines>(shared);
  LineLoader<Lines, Lines::kWidth, Lines::kPadded, 1, 1> x(g.x, g.channels, channel, g.height, g.samples);
  LineLoader<Lines, Lines::kColumns, Lines::kColumns, 0, kPortions> grad_y(g.grad_y, g.outputs, output, g.rows,
                                                                           g.samples);
  LinesOfBlock<Lines> at(g);
  int ring = 0;  // the next line of x is stored there
  x.load(at.sample(), at.first_row_of_x());
  grad_y.load(at.sample(), at.row);
  for (int step = 0; step < at.steps; ++step) {
    LinesOfBlock<Lines> next = at;
    next.advance();
    x.put(shared.x[ring][0][0][0]);
    if constexpr (kStride == 2) {
      x.load(at.sample(), at.row * kStride + 1);
    } else {
      x.load(next.sample(), next.first_row_of_x());
    }
    float* line = shared.grad_y[step % 2][0][0];
    grad_y.put(line);
    if constexpr (kPortions == 2) {
      grad_y.load(at.sample(), at.row, 1);
      grad_y.put(line, 1);
    }
    grad_y.load(next.sample(), next.row);
    if constexpr (kStride == 2) {
      x.put(shared.x[next_line(ring, Lines::kRing, 1)][0][0][0]);
      x.load(next.sample(), next.first_row_of_x());
    }
    ring = next_line(ring, Lines::kRing, kStride);
    at = next;
    publish_to_tensor_cores();
    meet();
  }
}

/// The work of the others.
template <class Lines>
__device__ __forceinline__ void multiply_lines(const ShiftedGradient& g, int tap_row, GradientShared<Lines>& shared,
                                               float (&sums)[96]) {
  constexpr int kAlongRows = kCoreRows * kCoreK;
  const StridedFactor a = strided_factor(shared.grad_y[0][0][0], Lines::kPixelFloats, kAlongRows);
  const StridedFactor b = strided_factor(shared.x[0][0][0][0], Lines::kStride * Lines::kPixelFloats, kAlongRows);
  LinesOfBlock<Lines> at(g);
  int ring = Lines::kRing - 3 + tap_row;  // the line of x for these taps
  for (int step = 0; step < at.steps; ++step) {
    ring = next_line(ring, Lines::kRing, Lines::kStride);
    wait_for_products();
    meet();
    if (step >= Lines::kWarmUp && at.row >= 0) {
      start_line<Lines>(sums, a + step % 2 * Lines::kPixels * Lines::kPixelFloats,
                        b + ring * Lines::kGroups * Lines::kPadded * Lines::kPixelFloats);
    }
    at.advance();
  }
  wait_for_products();
}

/// Grid: (O / 64 * C / 64, splits).
template <class Lines>
__global__ void __launch_bounds__(Lines::kThreads, 1) shifted_weight_gradient(ShiftedGradient g) {
  STAGECOACH_DYNAMIC_SHARED(GradientShared<Lines>, shared);
  const int output = static_cast<int>(blockIdx.x) % (g.outputs / 64) * 64;
  const int channel = static_cast<int>(blockIdx.x) / (g.outputs / 64) * 64;
  if (threadIdx.x >= Lines::kMultipliers) {
    load_lines<Lines>(g, output, channel, shared);
    return;
  }
  const int tap_row = static_cast<int>(threadIdx.x) / kWarpgroup;
  float sums[96] = {};
  multiply_lines<Lines>(g, tap_row, shared, sums);
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
  float sums_of_taps[9] = {};
#pragma unroll 2
  for (int split = y; split < splits; split += rows) {
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {  // as many loads at a time
      sums_of_taps[tap] += sums[(split * 9 + tap) * elements + first + x];
    }
  }
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
    parts.at[y][x * 9 + tap] = sums_of_taps[tap];
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
