#pragma once
/// @file
/// The gradient of the input of a convolution with stride 2, on the tensor cores of compute capability 9.0, in TF32. As
/// in shifted_conv2d.cuh a tap is a shift of the pixels in shared memory, here those of grad_y.
///
/// Row 2 p + r of x meets every second tap i, those of which r + padding - i is even. So the pixels of x are four
/// classes (r, s), and each is the image of a convolution with stride 1, whose taps shift by 0 or 1:
///
///   grad_x[n, c, 2 p + r, 2 q + s] = sum over o and the taps (i, j) of the class of
///       weight[o, c, i, j] grad_y[n, o, p + (r + padding - i) / 2, q + (s + padding - j) / 2]
///
/// A block computes the two classes of one r: a thread then holds adjacent pixels of a line, and stores whole vectors.

#include "core/cuda/async_copy.h"
#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

struct StridedGradient {
  const float* grad_y;  ///< [N, O, P, Q]
  const float* weight;  ///< as packed by pack_shifted_weight: from O channels to C
  float* grad_x;        ///< [N, C, 2 P, 2 Q]
  int samples;          ///< N
  int outputs;          ///< O, a multiple of 16
  int channels;         ///< C, a multiple of 64
  int rows;             ///< P
  FastDivmod channel_tiles;
  FastDivmod tiles_down;  ///< of an image
};

inline constexpr int kStridedThreads = kWarpgroup;
inline constexpr int kStridedBlocks = 3;  ///< per SM

/// What a block computes: of each class 64 channels by 128 pixels of grad_y. These are kRows rows of kSamples samples.
/// Tensor cores read groups of 8: adjacent pixels of a row, or 4 pixels of two samples by turns. Behind each group in
/// shared memory is the pixel to its right, which is zero at the end of a line; so all groups have the same distance.
template <int kColumns_, int kKernel_>
struct StridedTile {
  static constexpr int kColumns = kColumns_;  // Q
  static constexpr int kKernel = kKernel_;    // 3, or 1: then three of the four classes are zero
  static constexpr int kPadding = kKernel / 2;
  static constexpr int kStep = kColumns < 8 ? 2 : 1;  // the distance between adjacent pixels
  static constexpr int kGroup = 8 + kStep;
  static constexpr int kRows = kColumns < 8 ? 4 : 8;
  static constexpr int kAcross = 16 / kRows;  // groups side by side
  static constexpr int kSamples = kAcross * 8 / kColumns;
  static constexpr int kOutputs = 2 * kStridedThreads / (kSamples * kColumns);  // per stage: a thread loads two
  static constexpr int kWindowRows = kRows + kPadding;
  static constexpr int kWindow = kWindowRows * kAcross * kGroup;  // pixels
  static constexpr int kTapFloats = kWarpgroupRows * 8;           // weights of a tap for one instruction
  static constexpr int kTapRows = (kKernel + 1) / 2;              // that a class meets at most

  /// Taps first_tap, first_tap + 2, … of a row (or column) are those that rows (or columns) of this parity meet.
  static constexpr int first_tap(int parity) { return (parity + kPadding) % 2; }
  static constexpr int shift(int parity, int tap) { return (parity + kPadding - tap) / 2; }
};

template <class Tile>
struct alignas(128) StridedStage {
  float weight[Tile::kOutputs / 8][Tile::kTapRows][Tile::kKernel][Tile::kTapFloats];
  float window[Tile::kOutputs / kCoreK][Tile::kWindow][kCoreK];  // rounded to TF32
};
template <class Tile>
struct StridedShared {
  StridedStage<Tile> stages[2];
};

/// One thread's part of loading a window: a column of pixels, of two channels. Adjacent threads have the other two of
/// the four that are adjacent in shared memory.
template <class Tile>
class StridedLoader {
 public:
  __device__ StridedLoader(const StridedGradient& g, int sample, int row) : plane_(g.rows * Tile::kColumns) {
    const int n = column_of_tile() / Tile::kColumns;
    const int column = column_of_tile() % Tile::kColumns;
    grad_y_ = g.grad_y + ((sample + n) * g.outputs + channel()) * plane_ + row * Tile::kColumns + column;
    rows_ = sample + n < g.samples ? g.rows - row : 0;
    const int across = (n / Tile::kStep * Tile::kColumns + column) * Tile::kStep + n % Tile::kStep;
    const int pixel = across / 8 * Tile::kGroup + across % 8;
    place_ = (channel() / kCoreK * Tile::kWindow + pixel) * kCoreK + channel() % kCoreK;
  }
  /// Loads the next channels from memory into registers; the thread continues while the values arrive.
  __device__ void load() {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
#pragma unroll
      for (int i = 0; i < Tile::kWindowRows; ++i) {
        values_[i][c] = predicated_load(i < rows_, grad_y_ + c * plane_ + i * Tile::kColumns);
      }
    }
    grad_y_ += Tile::kOutputs * plane_;
  }
  /// Stores the registers in shared memory, rounded to TF32.
  __device__ void put(StridedStage<Tile>& stage) const {
    // The first pixel of a group is also the one behind the group before, if they are of the same line.
    const int column = column_of_tile() % Tile::kColumns;
    const bool twice = Tile::kPadding > 0 && column > 0 && column % 8 == 0;
    float* to = stage.window[0][0] + place_;
#pragma unroll
    for (int i = 0; i < Tile::kWindowRows; ++i) {
      const Vector2<std::uint32_t> rounded{{round_to_tf32(values_[i][0]), round_to_tf32(values_[i][1])}};
      float* pixel = to + i * Tile::kAcross * Tile::kGroup * kCoreK;
      reinterpret_cast<Vector2<std::uint32_t>&>(*pixel) = rounded;
      if (twice) {
        reinterpret_cast<Vector2<std::uint32_t>&>(*(pixel - kCoreK)) = rounded;
      }
    }
  }

 private:
  static constexpr int kChannels = 2;
  /// Returns the column in [kSamples, kColumns].
  __device__ static int column_of_tile() {
    return static_cast<int>(threadIdx.x) / 2 % (Tile::kSamples * Tile::kColumns);
  }
  __device__ static int channel() {
    const int thread = static_cast<int>(threadIdx.x);
    return thread / (2 * Tile::kSamples * Tile::kColumns) * kCoreK + thread % 2 * kChannels;
  }

  const float* grad_y_;
  int plane_;
  int rows_;   // that exist, from the tile's first on
  int place_;  // of the first row in the window, in floats
  float values_[Tile::kWindowRows][kChannels];
};

/// Sets all pixels of the windows to zero: those behind the lines are never overwritten.
template <class Tile>
__device__ void clear_windows(StridedShared<Tile>& shared) {
  for (StridedStage<Tile>& stage : shared.stages) {
    auto* window = reinterpret_cast<Vector<float, kCoreK>*>(stage.window[0]);
    for (int at = static_cast<int>(threadIdx.x); at < Tile::kOutputs / kCoreK * Tile::kWindow; at += kStridedThreads) {
      window[at] = {};
    }
  }
}

/// Starts to copy this thread's part of the weights of the taps that rows of kParity meet. `weight` [O / 8, taps, 2,
/// 64, 4] is packed, from the thread's part on.
template <class Tile, int kParity>
__device__ void start_taps(StridedStage<Tile>& stage, const float* weight) {
  constexpr int kFloats = Tile::kKernel * Tile::kTapFloats;  // of a row of taps
  float* to = &stage.weight[0][0][0][static_cast<int>(threadIdx.x) * kCoreK];
#pragma unroll
  for (int k = 0; k < Tile::kOutputs / 8; ++k) {
#pragma unroll
    for (int i = Tile::first_tap(kParity); i < Tile::kKernel; i += 2) {
#pragma unroll
      for (int at = 0; at < kFloats; at += kStridedThreads * kCoreK) {
        start_copy(to + (k * Tile::kTapRows + i / 2) * kFloats + at, weight + (k * Tile::kKernel + i) * kFloats + at);
      }
    }
  }
}

/// Starts to add the products of a stage to the sums of both classes.
template <class Tile, int kParity>
__device__ __forceinline__ void start_classes(float (&sums)[2][64], StridedFactor a, StridedFactor b) {
  begin_products();
#pragma unroll
  for (int k = 0; k < Tile::kOutputs / 8; ++k) {
#pragma unroll
    for (int i = Tile::first_tap(kParity); i < Tile::kKernel; i += 2) {
      const int row = Tile::shift(kParity, i) * Tile::kAcross * Tile::kGroup;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int j = Tile::first_tap(s); j < Tile::kKernel; j += 2) {
          const int tap = (k * Tile::kTapRows + i / 2) * Tile::kKernel + j;
          const int pixel = k * 2 * Tile::kWindow + row + Tile::shift(s, j) * Tile::kStep;
          start_product(sums[s], a + tap * Tile::kTapFloats, b + pixel * kCoreK);
        }
      }
    }
  }
  end_products();
}

/// Stores a warpgroup's sums: 64 channels from `channel` on, of the tile that begins at (sample, row).
template <class Tile>
__device__ __forceinline__ void store_classes(const StridedGradient& g, int parity, int channel, int sample, int row,
                                              const float (&sums)[2][64]) {
  constexpr int kVector = 4 / Tile::kStep;  // adjacent pixels of x that a thread has
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int c = channel + 16 * (static_cast<int>(threadIdx.x) / 32) + lane / 4;
  const int plane = 4 * g.rows * Tile::kColumns;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const int p = row + j / Tile::kAcross;
#pragma unroll
    for (int i = 0; i < Tile::kStep; ++i) {
      const int across = j % Tile::kAcross * 8 + lane % 4 * 2 + i;
      const int n = sample + across / (Tile::kColumns * Tile::kStep) * Tile::kStep + i;
      const int column = across / Tile::kStep % Tile::kColumns * 2;
      if (p < g.rows && n < g.samples) {
        float* to = g.grad_x + (n * g.channels + c) * plane + (2 * p + parity) * 2 * Tile::kColumns + column;
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          Vector<float, kVector> pixels;
#pragma unroll
          for (int k = 0; k < kVector; ++k) {
            pixels.at[k] = sums[k % 2][4 * j + 2 * high + i + k / 2];
          }
          vector_at<kVector>(to + high * 8 * plane) = pixels;
        }
      }
    }
  }
}

/// Adds all products for 64 channels of the tile that begins at (sample, row). `weight` is packed, for these channels.
template <class Tile, int kParity>
__device__ __forceinline__ void add_classes(const StridedGradient& g, StridedShared<Tile>& shared, const float* weight,
                                            int sample, int row, float (&sums)[2][64]) {
  constexpr int kStageFloats = sizeof(StridedStage<Tile>) / sizeof(float);
  constexpr int kWeightFloats = Tile::kOutputs / 8 * Tile::kKernel * Tile::kKernel * Tile::kTapFloats;
  StridedStage<Tile>& first = shared.stages[0];
  const StridedFactor a = strided_factor(first.weight[0][0][0], kWarpgroupRows * kCoreK, kCoreRows * kCoreK);
  const StridedFactor b = strided_factor(first.window[0][0], Tile::kWindow * kCoreK, Tile::kGroup * kCoreK);
  StridedLoader<Tile> loader(g, sample, row);
  weight += threadIdx.x * kCoreK;
  start_taps<Tile, kParity>(first, weight);
  loader.load();
  clear_windows(shared);
  __syncthreads();  // the windows are clear
  int stage = 0;
  for (int outputs = g.outputs; outputs > 0; outputs -= Tile::kOutputs) {
    loader.put(shared.stages[stage]);
    wait_for_copies();
    publish_to_tensor_cores();
    wait_for_products();  // of the stage that is filled next
    __syncthreads();      // the stage is complete, and no warp reads the one that is filled next
    start_classes<Tile, kParity>(sums, a + stage * kStageFloats, b + stage * kStageFloats);
    stage = 1 - stage;
    if (outputs > Tile::kOutputs) {
      weight += kWeightFloats;
      start_taps<Tile, kParity>(shared.stages[stage], weight);
      loader.load();
    }
  }
  wait_for_products();
}

/// Grid: two blocks for each tile, one for each parity of the rows of x.
template <class Tile>
__global__ void __launch_bounds__(kStridedThreads, kStridedBlocks) strided_grad_input_tiles(StridedGradient g) {
  STAGECOACH_DYNAMIC_SHARED(StridedShared<Tile>, shared);
  const int block = static_cast<int>(blockIdx.x) / 2;
  const int parity = static_cast<int>(blockIdx.x) % 2;
  const int tile = g.channel_tiles.quotient(block);
  const int channel_tile = g.channel_tiles.remainder(block, tile);  // along channels first: they share the pixels
  const int group = g.tiles_down.quotient(tile);
  const int sample = group * Tile::kSamples;
  const int row = g.tiles_down.remainder(tile, group) * Tile::kRows;
  constexpr int kWeights = Tile::kKernel * Tile::kKernel * kWarpgroupRows;  // for each output
  const float* weight = g.weight + static_cast<long long>(channel_tile) * g.outputs * kWeights;
  float sums[2][64] = {};
  if (parity == 0) {
    add_classes<Tile, 0>(g, shared, weight, sample, row, sums);
  } else if constexpr (Tile::kKernel > 1) {  // else these rows meet no tap
    add_classes<Tile, 1>(g, shared, weight, sample, row, sums);
  }
  store_classes<Tile>(g, parity, channel_tile * kWarpgroupRows, sample, row, sums);
}

}  // namespace stagecoach::cuda
