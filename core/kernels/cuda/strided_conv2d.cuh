#pragma once
/// @file
/// Convolutions of 3 x 3 taps with stride 2, on the tensor cores of compute capability 9.0, in TF32. As in
/// shifted_conv2d.cuh a tap is a shift of the pixels in shared memory, if these are sorted: even columns of x are apart
/// from odd ones, and even rows from odd ones.
///
///   y[n, o, p, q] = sum over c, i, j of weight[o, c, i, j] x[n, c, 2 p + i - 1, 2 q + j - 1]
///
/// The first half of this file is also used by strided_input_gradient.cuh.

#include "core/cuda/async_copy.h"
#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

/// A pixel of the smaller images, y and grad_y.
struct TilePixel {
  int sample;
  int row;
  int column;
};

/// The 128 pixels of y that a block computes, or of grad_y that it multiplies: kRows rows of kSamples samples. Tensor
/// cores read groups of 8: adjacent pixels of a row, or 4 pixels of two samples by turns. Where a tap shifts them along
/// a row, a group has one more pixel (or one of each sample) beside it in shared memory, which is zero at the end of a
/// line. So all groups have the same distance.
template <int kColumns_>
struct StridedTile {
  static constexpr int kColumns = kColumns_;          // Q
  static constexpr int kStep = kColumns < 8 ? 2 : 1;  // the distance between adjacent pixels
  static constexpr int kGroup = 8 + kStep;            // the distance between groups
  static constexpr int kRows = kColumns < 8 ? 4 : 8;
  static constexpr int kAcross = 16 / kRows;  // groups side by side
  static constexpr int kSamples = kAcross * 8 / kColumns;

  /// Returns where a pixel is in its row of groups, which are `distance` apart.
  __device__ static int in_groups(int sample, int column, int distance) {
    const int at = (sample / kStep * kColumns + column) * kStep + sample % kStep;
    return at / 8 * distance + at % 8;
  }
  /// Returns pixel `i` of group `j`.
  __device__ static TilePixel pixel(int j, int i) {
    const int at = j % kAcross * 8 + i;
    return {at / (kColumns * kStep) * kStep + at % kStep, j / kAcross, at / kStep % kColumns};
  }
};

/// Where the tile of a block begins.
struct TileAt {
  int channels;  // number of the tile of channels of the result
  int sample;
  int row;  // of y
};
/// The tiles of a product, along channels first: these share the pixels.
struct StridedTiles {
  FastDivmod across_channels;
  FastDivmod down;  // of an image
  template <class Tile>
  __device__ TileAt at(int block) const {
    const int tile = across_channels.quotient(block);
    const int group = down.quotient(tile);
    return {across_channels.remainder(block, tile), group * Tile::kSamples, down.remainder(tile, group) * Tile::kRows};
  }
};

/// One thread's part of loading a window of images [N, C, H, kWidth] into shared memory: a column of some channels. The
/// window is kWindowRows of each of kSamples, kPixels in shared memory: row `i` of column `w` is row(i) pitch(w) pixels
/// after place(sample, w), and once more kBeside after that if is_beside_next(w).
template <class Window>
class ColumnLoader {
 public:
  /// The window begins at `row`, which may be -1, of sample `sample`.
  __device__ ColumnLoader(const float* images, int samples, int channels, int height, int sample, int row)
      : plane_(height * Window::kWidth), starts_inside_(row >= 0) {
    const int n = column() / Window::kWidth;
    const int w = column() % Window::kWidth;
    from_ = images + ((sample + n) * channels + channel()) * plane_ + row * Window::kWidth + w;
    rows_ = sample + n < samples ? height - row : 0;
    place_ = (channel() / kCoreK * Window::kPixels + Window::place(n, w)) * kCoreK + channel() % kCoreK;
  }
  /// Loads the next channels from memory into registers; the thread continues while the values arrive.
  __device__ void load() {
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
#pragma unroll
      for (int i = 0; i < Window::kWindowRows; ++i) {
        const bool exists = i < rows_ && (i >= Window::kRowsAbove || starts_inside_);
        values_[i][c] = predicated_load(exists, from_ + c * plane_ + i * Window::kWidth);
      }
    }
    from_ += Window::kChannels * plane_;
  }
  /// Stores the registers in shared memory, rounded to TF32.
  __device__ void put(float* window) const {
    const int w = column() % Window::kWidth;
#pragma unroll
    for (int i = 0; i < Window::kWindowRows; ++i) {
      Vector<std::uint32_t, kHeld> rounded;
#pragma unroll
      for (int c = 0; c < kHeld; ++c) {
        rounded.at[c] = round_to_tf32(values_[i][c]);
      }
      float* to = window + place_ + Window::row(i) * Window::pitch(w) * kCoreK;
      reinterpret_cast<Vector<std::uint32_t, kHeld>&>(*to) = rounded;
      if (Window::is_beside_next(w)) {
        reinterpret_cast<Vector<std::uint32_t, kHeld>&>(to[Window::kBeside * kCoreK]) = rounded;
      }
    }
  }

 private:
  static constexpr int kWindowColumns = Window::kSamples * Window::kWidth;
  static constexpr int kHeld = Window::kChannels * kWindowColumns / Window::kThreads;  // channels
  static constexpr int kParts = kCoreK / kHeld;  // adjacent threads have four adjacent channels of a pixel
  __device__ static int column() { return static_cast<int>(threadIdx.x) / kParts % kWindowColumns; }
  __device__ static int channel() {
    const int thread = static_cast<int>(threadIdx.x);
    return thread / (kParts * kWindowColumns) * kCoreK + thread % kParts * kHeld;
  }

  const float* from_;
  int plane_;
  bool starts_inside_;
  int rows_;   // that exist, from the first of the window on
  int place_;  // of its first row in shared memory, in floats
  float values_[Window::kWindowRows][kHeld];
};

/// Loads and multiplies `count` stages: copy(stage) starts to copy the next weights there, start(number) to multiply
/// stage `number`. Pixels that are never loaded are zero.
template <class Window, class Stage, class Copy, class Start>
__device__ __forceinline__ void multiply_stages(Stage (&stages)[2], ColumnLoader<Window>& loader, int count,
                                                const Copy& copy, const Start& start) {
  copy(stages[0]);
  loader.load();
  for (Stage& stage : stages) {
    for (int at = static_cast<int>(threadIdx.x); at < Window::kChannels / kCoreK * Window::kPixels;
         at += Window::kThreads) {
      reinterpret_cast<Vector<float, kCoreK>*>(stage.window)[at] = {};
    }
  }
  __syncthreads();  // all pixels are zero
  int number = 0;
  for (; count > 0; --count) {
    loader.put(stages[number].window);
    wait_for_copies();
    publish_to_tensor_cores();
    wait_for_products();  // of the stage that is filled next
    __syncthreads();      // the stage is complete, and no warp's products read the one that is filled next
    begin_products();
    start(number);
    end_products();
    number = 1 - number;
    if (count > 1) {
      copy(stages[number]);
      loader.load();
    }
  }
  wait_for_products();
}

// ---- The convolution

struct StridedConv {
  const float* x;       ///< [N, C, 2 P, 2 Q]
  const float* weight;  ///< as packed by pack_shifted_weight
  const float* bias;    ///< [O] or null
  float* y;             ///< [N, O, P, Q]
  int samples;          ///< N
  int channels;         ///< C, a multiple of 8
  int outputs;          ///< O, a multiple of 128
  int rows;             ///< P
  StridedTiles tiles;
};

/// The pixels of x that a tile needs: its odd rows from the one above the tile on, then the even ones; even columns,
/// then odd ones, whose groups have the pixel to their left before them.
template <int kColumns_>
struct ConvWindow : StridedTile<kColumns_> {
  using Tile = StridedTile<kColumns_>;
  static constexpr int kThreads = 2 * kWarpgroup;  // which have 64 outputs each
  static constexpr int kBlocks = 2;                // per SM
  static constexpr int kChannels = 8;              // per stage
  static constexpr int kWidth = 2 * Tile::kColumns;
  static constexpr int kRowsAbove = 1;
  static constexpr int kWindowRows = 2 * Tile::kRows + 1;
  static constexpr int kEven = kWindowRows * Tile::kAcross * 8;  // pixels of even columns
  static constexpr int kPixels = kEven + kWindowRows * Tile::kAcross * Tile::kGroup;

  static constexpr int row(int i) { return i % 2 == 0 ? i / 2 : Tile::kRows + 1 + i / 2; }
  __device__ static int pitch(int w) { return Tile::kAcross * (w % 2 == 0 ? 8 : Tile::kGroup); }
  __device__ static int place(int sample, int w) {
    return w % 2 == 0 ? Tile::in_groups(sample, w / 2, 8)
                      : kEven + Tile::kStep + Tile::in_groups(sample, w / 2, Tile::kGroup);
  }
  /// Whether a pixel is also the one to the left of the next group, kBeside further.
  __device__ static bool is_beside_next(int w) { return Tile::kColumns > 8 && w % 16 == 15 && w < kWidth - 1; }
  static constexpr int kBeside = 1;
};

template <class Window>
struct alignas(128) ConvStage {
  float weight[2][9][kWarpgroupRows * 8];  // of 64 outputs each
  float window[Window::kChannels * Window::kPixels];
};
template <class Window>
struct ConvShared {
  ConvStage<Window> stages[2];
};

/// Starts to add the products of a stage, of which `a` is the weight, `even` and `odd` the columns.
template <class Window>
__device__ __forceinline__ void start_taps(float (&sums)[64], StridedFactor a, StridedFactor even, StridedFactor odd) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int row = Window::row(i) * Window::kAcross;  // of groups
    const StridedFactor left = odd + row * Window::kGroup * kCoreK;
    const StridedFactor tap = a + 3 * i * kWarpgroupRows * 8;
    start_product(sums, tap, left);
    start_product(sums, tap + kWarpgroupRows * 8, even + row * 8 * kCoreK);
    start_product(sums, tap + 2 * kWarpgroupRows * 8, left + Window::kStep * kCoreK);
  }
}

/// Stores a warpgroup's sums: 64 outputs from `output` on.
template <class Window>
__device__ void store_outputs(const StridedConv& conv, const TileAt& tile, int output, const float (&sums)[64]) {
  constexpr int kVector = 2 / Window::kStep;  // adjacent pixels of y that a thread has
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int o = output + 16 * (static_cast<int>(threadIdx.x) % kWarpgroup / 32) + lane / 4;
  const int plane = conv.rows * Window::kColumns;
  const float bias[2] = {conv.bias == nullptr ? 0 : conv.bias[o], conv.bias == nullptr ? 0 : conv.bias[o + 8]};
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int i = 0; i < Window::kStep; ++i) {
      const TilePixel at = Window::pixel(j, lane % 4 * 2 + i);
      const int n = tile.sample + at.sample;
      if (n < conv.samples && tile.row + at.row < conv.rows) {
        float* to = conv.y + (n * conv.outputs + o) * plane + (tile.row + at.row) * Window::kColumns + at.column;
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          Vector<float, kVector> pixels;
#pragma unroll
          for (int k = 0; k < kVector; ++k) {
            pixels.at[k] = sums[4 * j + 2 * high + i + k] + bias[high];
          }
          vector_at<kVector>(to + high * 8 * plane) = pixels;
        }
      }
    }
  }
}

/// A block for each tile of 128 outputs.
template <class Window>
__global__ void __launch_bounds__(Window::kThreads, Window::kBlocks) strided_conv2d_tiles(StridedConv conv) {
  STAGECOACH_DYNAMIC_SHARED(ConvShared<Window>, shared);
  using Stage = ConvStage<Window>;
  constexpr int kStageFloats = sizeof(Stage) / sizeof(float);
  constexpr int kWeightFloats = 9 * kWarpgroupRows * 8;
  constexpr int kAlongK = Window::kPixels * kCoreK;
  const TileAt tile = conv.tiles.template at<Window>(static_cast<int>(blockIdx.x));
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int mine = static_cast<int>(threadIdx.x) % kWarpgroup * kCoreK;
  const int chunks = conv.channels / Window::kChannels;
  const int output_tile = tile.channels * 2 + warpgroup;
  const float* weight = conv.weight + static_cast<long long>(output_tile) * chunks * kWeightFloats + mine;
  const StridedFactor a =
      strided_factor(shared.stages[0].weight[warpgroup][0], kWarpgroupRows * kCoreK, kCoreRows * kCoreK);
  const StridedFactor even = strided_factor(shared.stages[0].window, kAlongK, 8 * kCoreK);
  const StridedFactor odd =
      strided_factor(shared.stages[0].window + Window::kEven * kCoreK, kAlongK, Window::kGroup * kCoreK);

  float sums[64] = {};
  ColumnLoader<Window> loader(conv.x, conv.samples, conv.channels, 2 * conv.rows, tile.sample, 2 * tile.row - 1);
  const auto copy = [&](Stage& stage) {
#pragma unroll
    for (int at = 0; at < kWeightFloats; at += kWarpgroup * kCoreK) {
      start_copy(stage.weight[warpgroup][0] + mine + at, weight + at);
    }
    weight += kWeightFloats;
  };
  const auto start = [&](int number) {
    const int floats = number * kStageFloats;
    start_taps<Window>(sums, a + floats, even + floats, odd + floats);
  };
  multiply_stages(shared.stages, loader, chunks, copy, start);
  store_outputs<Window>(conv, tile, output_tile * kWarpgroupRows, sums);
}

}  // namespace stagecoach::cuda
