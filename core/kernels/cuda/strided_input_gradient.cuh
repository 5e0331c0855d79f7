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

#include "core/kernels/cuda/strided_conv2d.cuh"

namespace stagecoach::cuda {

struct StridedGradient {
  const float* grad_y;  ///< [N, O, P, Q]
  const float* weight;  ///< as packed by pack_shifted_weight: from O channels to C
  float* grad_x;        ///< [N, C, 2 P, 2 Q]
  int samples;          ///< N
  int outputs;          ///< O, a multiple of 16
  int channels;         ///< C, a multiple of 64
  int rows;             ///< P
  StridedTiles tiles;
};

/// The pixels of grad_y that a tile needs, and the taps. After each group is the pixel to its right.
template <int kColumns_, int kKernel_>
struct GradientWindow : StridedTile<kColumns_> {
  using Tile = StridedTile<kColumns_>;
  static constexpr int kKernel = kKernel_;  // 3, or 1: then three of the four classes are zero
  static constexpr int kPadding = kKernel / 2;
  static constexpr int kThreads = kWarpgroup;
  static constexpr int kBlocks = 3;                                                   // per SM
  static constexpr int kChannels = 2 * kThreads / (Tile::kSamples * Tile::kColumns);  // per stage: a thread loads two
  static constexpr int kWidth = Tile::kColumns;
  static constexpr int kRowsAbove = 0;
  static constexpr int kWindowRows = Tile::kRows + kPadding;
  static constexpr int kRowPixels = Tile::kAcross * Tile::kGroup;
  static constexpr int kPixels = kWindowRows * kRowPixels;

  static constexpr int row(int i) { return i; }
  static constexpr int pitch(int /*w*/) { return kRowPixels; }
  __device__ static int place(int sample, int w) { return Tile::in_groups(sample, w, Tile::kGroup); }
  /// Whether a pixel is also the one after the group before.
  __device__ static bool is_beside_next(int w) { return kPadding > 0 && w > 0 && w % 8 == 0; }
  static constexpr int kBeside = -1;

  static constexpr int kTapFloats = kWarpgroupRows * 8;  // weights of a tap for one instruction
  static constexpr int kTapRows = (kKernel + 1) / 2;     // that a class meets at most
  /// Taps first_tap, first_tap + 2, … of a row (or column) are those that rows (or columns) of this parity meet.
  static constexpr int first_tap(int parity) { return (parity + kPadding) % 2; }
  static constexpr int shift(int parity, int tap) { return (parity + kPadding - tap) / 2; }
};

template <class Window>
struct alignas(128) GradientStage {
  float weight[Window::kChannels / 8][Window::kTapRows][Window::kKernel][Window::kTapFloats];
  float window[Window::kChannels * Window::kPixels];
};
template <class Window>
struct InputGradientShared {
  GradientStage<Window> stages[2];
};

/// Starts to copy this thread's part of the weights of the taps that rows of kParity meet. `weight` [O / 8, taps, 2,
/// 64, 4] is packed, from the thread's part on.
template <class Window, int kParity>
__device__ void copy_taps(GradientStage<Window>& stage, const float* weight) {
  constexpr int kFloats = Window::kKernel * Window::kTapFloats;  // of a row of taps
  float* to = &stage.weight[0][0][0][static_cast<int>(threadIdx.x) * kCoreK];
#pragma unroll
  for (int k = 0; k < Window::kChannels / 8; ++k) {
#pragma unroll
    for (int i = Window::first_tap(kParity); i < Window::kKernel; i += 2) {
#pragma unroll
      for (int at = 0; at < kFloats; at += Window::kThreads * kCoreK) {
        start_copy(to + (k * Window::kTapRows + i / 2) * kFloats + at,
                   weight + (k * Window::kKernel + i) * kFloats + at);
      }
    }
  }
}

/// Starts to add the products of a stage to the sums of both classes.
template <class Window, int kParity>
__device__ __forceinline__ void start_classes(float (&sums)[2][64], StridedFactor a, StridedFactor b) {
#pragma unroll
  for (int k = 0; k < Window::kChannels / 8; ++k) {
#pragma unroll
    for (int i = Window::first_tap(kParity); i < Window::kKernel; i += 2) {
      const int row = k * 2 * Window::kPixels + Window::shift(kParity, i) * Window::kRowPixels;
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int j = Window::first_tap(s); j < Window::kKernel; j += 2) {
          const int tap = (k * Window::kTapRows + i / 2) * Window::kKernel + j;
          start_product(sums[s], a + tap * Window::kTapFloats,
                        b + (row + Window::shift(s, j) * Window::kStep) * kCoreK);
        }
      }
    }
  }
}

/// Stores a warpgroup's sums: 64 channels of rows of this parity.
template <class Window>
__device__ __forceinline__ void store_classes(const StridedGradient& g, const TileAt& tile, int parity,
                                              const float (&sums)[2][64]) {
  constexpr int kVector = 4 / Window::kStep;  // adjacent pixels of x that a thread has
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int c = tile.channels * kWarpgroupRows + 16 * (static_cast<int>(threadIdx.x) / 32) + lane / 4;
  const int plane = 4 * g.rows * Window::kColumns;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < Window::kStep; ++i) {
      const TilePixel at = Window::pixel(j, lane % 4 * 2 + i);
      const int n = tile.sample + at.sample;
      const int p = tile.row + at.row;
      if (n < g.samples && p < g.rows) {
        float* to = g.grad_x + (n * g.channels + c) * plane + ((2 * p + parity) * Window::kColumns + at.column) * 2;
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

/// Adds all products of both classes of a tile.
template <class Window, int kParity>
__device__ __forceinline__ void add_classes(const StridedGradient& g, InputGradientShared<Window>& shared,
                                            const TileAt& tile, float (&sums)[2][64]) {
  using Stage = GradientStage<Window>;
  constexpr int kStageFloats = sizeof(Stage) / sizeof(float);
  constexpr int kWeights = Window::kKernel * Window::kKernel * kWarpgroupRows;  // for each output
  const float* weight = g.weight + static_cast<long long>(tile.channels) * g.outputs * kWeights + threadIdx.x * kCoreK;
  Stage& first = shared.stages[0];
  const StridedFactor a = strided_factor(first.weight[0][0][0], kWarpgroupRows * kCoreK, kCoreRows * kCoreK);
  const StridedFactor b = strided_factor(first.window, Window::kPixels * kCoreK, Window::kGroup * kCoreK);
  ColumnLoader<Window> loader(g.grad_y, g.samples, g.outputs, g.rows, tile.sample, tile.row);
  const auto copy = [&](Stage& stage) {
    copy_taps<Window, kParity>(stage, weight);
    weight += Window::kChannels * kWeights;
  };
  const auto start = [&](int number) {
    start_classes<Window, kParity>(sums, a + number * kStageFloats, b + number * kStageFloats);
  };
  multiply_stages(shared.stages, loader, g.outputs / Window::kChannels, copy, start);
}

/// Grid: two blocks for each tile of 64 channels, one for each parity of the rows of x.
template <class Window>
__global__ void __launch_bounds__(Window::kThreads, Window::kBlocks) strided_input_gradient_tiles(StridedGradient g) {
  STAGECOACH_DYNAMIC_SHARED(InputGradientShared<Window>, shared);
  const int parity = static_cast<int>(blockIdx.x) % 2;
  const TileAt tile = g.tiles.template at<Window>(static_cast<int>(blockIdx.x) / 2);
  float sums[2][64] = {};
  if (parity == 0) {
    add_classes<Window, 0>(g, shared, tile, sums);
  } else if constexpr (Window::kKernel > 1) {  // else these rows meet no tap
    add_classes<Window, 1>(g, shared, tile, sums);
  }
  store_classes<Window>(g, tile, parity, sums);
}

}  // namespace stagecoach::cuda
