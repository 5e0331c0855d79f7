#pragma once
/// @file
/// Convolutions of 3 x 3 taps on the tensor cores of compute capability 9.0, in TF32: the sixth kernel of
/// docs/convolution_kernel.md. A block loads the pixels around its tile once, instead of once per tap: where they are
/// in shared memory, a tap is a shift. Tensor cores read any eight pixels that are adjacent there, from any pixel on,
/// so a factor is nine times the same memory, from nine addresses.
///
///   y[o, n] = sum over (i, j), c of weight[o, c, i, j] window[c, n + i pitch + j step]
///
/// For that, the pixels of all samples are one sequence, with zeros for what is outside: each line of an image begins
/// with a zero, which is also the one after the last pixel of the line before, and between two images there is a line
/// of zeros. The results for these zeros are computed too, and not stored.

#include "core/cuda/async_copy.h"
#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

inline constexpr int kShiftedTaps = 9;
inline constexpr int kShiftedChannels = 8;  ///< per stage: K of an instruction, for each tap

/// A pixel of an image, or none.
struct PixelAt {
  int sample;
  int row;
  int column;
  bool inside;
};

/// The sequence of the pixels of images [N, …, H, W]. Tensor cores read columns in groups of 8, which are any distance
/// apart but adjacent in themselves. Where a line is such a group (of 8 pixels, or of 4 of two samples by turns), the
/// columns leave out the zeros between lines; else groups are adjacent.
struct PixelSequence {
  PixelSequence(int samples_, int height_, int width_)
      : samples(samples_),
        height(height_),
        width(width_),
        step(width == 4 ? 2 : 1),
        pitch((width + 1) * step),
        group(width * step == 8 ? pitch : 8),
        by_pitch(pitch),
        by_image(height + 1) {}

  int lines() const { return (samples + step - 1) / step * (height + 1); }
  /// Returns the number of tiles of `columns` results that cover all pixels.
  int tiles(int columns) const {
    const int advance = columns / 8 * group;
    return (lines() * pitch + advance - 1) / advance;
  }
  /// Returns the number of pixels that the results of a tile need.
  __host__ __device__ int window(int columns) const { return (columns / 8 - 1) * group + 8 + 2 * (pitch + step); }

  __device__ PixelAt pixel(int at) const {
    const int line = by_pitch.quotient(at);
    const int in_line = by_pitch.remainder(at, line);
    const int image = by_image.quotient(line);
    const int row = by_image.remainder(line, image) - 1;
    const int column = (step == 2 ? in_line / 2 : in_line) - 1;
    const int sample = step == 2 ? image * 2 + in_line % 2 : image;
    return {sample, row, column, row >= 0 && column >= 0 && column < width && sample < samples};
  }

  int samples;
  int height;
  int width;
  int step;   ///< samples side by side: the distance between adjacent pixels of a line
  int pitch;  ///< distance between lines
  int group;  ///< distance between groups of 8 columns
  FastDivmod by_pitch;
  FastDivmod by_image;
};

struct ShiftedConv {
  const float* x;       ///< [N, C, H, W]
  const float* weight;  ///< as packed by pack_shifted_weight
  const float* bias;    ///< [O] or null
  float* y;             ///< [N, O, H, W]
  int channels;         ///< C, a multiple of kShiftedChannels
  int outputs;          ///< O, a multiple of the tile's rows
  PixelSequence pixels;
};

/// The part of the result that a block computes: kM outputs by kN or fewer columns. Three blocks with two stages each
/// fit into an SM of an H200, which is faster there than fewer blocks with larger tiles or more stages.
struct ShiftedTile {
  static constexpr int kM = kWarpgroupRows;
  static constexpr int kN = 256;
  static constexpr int kBlocks = 3;
  static constexpr int kThreads = kWarpgroup;
  static constexpr int kWindow = kN / 2 * 3;  // the most pixels of a window
  static constexpr int kSlots = (kWindow + kThreads - 1) / kThreads;
  static constexpr int kStages = 2;
};

struct alignas(128) ShiftedStage {
  float weight[kShiftedTaps][kShiftedChannels / kCoreK][ShiftedTile::kM][kCoreK];
  float window[kShiftedChannels / kCoreK][ShiftedTile::kWindow][kCoreK];
};
struct ShiftedShared {
  ShiftedStage stages[ShiftedTile::kStages];
  int offsets[ShiftedTile::kN];  // of the results for output 0 in y, or -1
};

/// One thread's part of loading a window: all channels of every kThreads-th pixel.
class WindowLoader {
 public:
  __device__ WindowLoader(const ShiftedConv& conv, int first, int count)
      : plane_(conv.pixels.height * conv.pixels.width), count_(count), x_(conv.x) {
#pragma unroll
    for (int i = 0; i < ShiftedTile::kSlots; ++i) {
      const int at = unit(i);
      const PixelAt pixel = conv.pixels.pixel(first + at);
      offsets_[i] = at < count_ && pixel.inside
                        ? pixel.sample * conv.channels * plane_ + pixel.row * conv.pixels.width + pixel.column
                        : -1;
    }
  }
  /// Loads the next channels from memory into registers; the thread continues while the values arrive.
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < ShiftedTile::kSlots; ++i) {
#pragma unroll
      for (int c = 0; c < kShiftedChannels; ++c) {
        values_[i][c] = predicated_load(offsets_[i] >= 0, x_ + offsets_[i] + c * plane_);
      }
    }
    x_ += kShiftedChannels * plane_;
  }
  /// Stores the registers in shared memory, rounded to TF32.
  __device__ void put(ShiftedStage& stage) const {
#pragma unroll
    for (int i = 0; i < ShiftedTile::kSlots; ++i) {
      if (unit(i) < count_) {
#pragma unroll
        for (int c = 0; c < kShiftedChannels; c += kCoreK) {
          *reinterpret_cast<Vector<std::uint32_t, kCoreK>*>(stage.window[c / kCoreK][unit(i)]) = {
              {round_to_tf32(values_[i][c]), round_to_tf32(values_[i][c + 1]), round_to_tf32(values_[i][c + 2]),
               round_to_tf32(values_[i][c + 3])}};
        }
      }
    }
  }

 private:
  __device__ static int unit(int slot) { return static_cast<int>(threadIdx.x) + slot * ShiftedTile::kThreads; }

  int plane_;
  int count_;  // pixels of the window
  const float* x_;
  int offsets_[ShiftedTile::kSlots];
  float values_[ShiftedTile::kSlots][kShiftedChannels];
};

__device__ void start_weight(ShiftedStage& stage, const float* weight) {
  constexpr int kFloats = sizeof(stage.weight) / sizeof(float);
  float* to = &stage.weight[0][0][0][0];
  for (int at = static_cast<int>(threadIdx.x) * kCoreK; at < kFloats; at += ShiftedTile::kThreads * kCoreK) {
    start_copy(to + at, weight + at);
  }
}

/// Fills the table of where the results are in y; complete after the next barrier.
template <int kN>
__device__ void find_results(const ShiftedConv& conv, int first, int (&offsets)[ShiftedTile::kN]) {
  const PixelSequence& s = conv.pixels;
  for (int n = static_cast<int>(threadIdx.x); n < kN; n += ShiftedTile::kThreads) {
    const PixelAt pixel = s.pixel(first + s.pitch + s.step + n / 8 * s.group + n % 8);
    const int plane = s.height * s.width;
    offsets[n] = pixel.inside ? pixel.sample * conv.outputs * plane + pixel.row * s.width + pixel.column : -1;
  }
}

/// A warp's sums on their way to y, some columns at a time: written as tensor cores leave them, in pieces of two
/// columns of eight rows, and read row by row, as y has them. Stores of the pieces would take more time than the
/// products.
struct RowsToStore {
  static constexpr int kRows = 16;
  static constexpr int kColumns = 64;  // at most
  float at[kRows][kColumns + 8];       // + 8: threads that write adjacent rows use different banks
};

/// Stores a warpgroup's sums: outputs from `first` on, for the columns in `offsets`. Each warp has `rows` for itself.
template <int kN>
__device__ void store_shifted(const ShiftedConv& conv, int first, const int* offsets, const float (&sums)[kN / 2],
                              RowsToStore* rows_of_warps) {
  constexpr int kColumns = kN / 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  RowsToStore& rows = rows_of_warps[warp];
  const int o = first + RowsToStore::kRows * warp;
  const float low = conv.bias == nullptr ? 0 : conv.bias[o + lane / 4];
  const float high = conv.bias == nullptr ? 0 : conv.bias[o + lane / 4 + 8];
  const int plane = conv.pixels.height * conv.pixels.width;
  float* y = conv.y + o * plane;
#pragma unroll
  for (int column = 0; column < kN; column += kColumns) {
#pragma unroll
    for (int j = 0; j < kColumns; j += 8) {
      const int at = (column + j) / 2;
      float* pair = &rows.at[lane / 4][j + lane % 4 * 2];
      *reinterpret_cast<Vector2<float>*>(pair) = {{sums[at] + low, sums[at + 1] + low}};
      pair = &rows.at[lane / 4 + 8][j + lane % 4 * 2];
      *reinterpret_cast<Vector2<float>*>(pair) = {{sums[at + 2] + high, sums[at + 3] + high}};
    }
    __syncwarp();
#pragma unroll
    for (int j = lane; j < kColumns; j += 32) {
      if (const int offset = offsets[column + j]; offset >= 0) {
        float* to = y + offset;
#pragma unroll
        for (int row = 0; row < RowsToStore::kRows; ++row, to += plane) {
          *to = rows.at[row][j];
        }
      }
    }
    __syncwarp();
  }
}

template <int kN>
__global__ void __launch_bounds__(ShiftedTile::kThreads, ShiftedTile::kBlocks) shifted_conv2d_tiles(ShiftedConv conv) {
  STAGECOACH_DYNAMIC_SHARED(ShiftedShared, shared);
  const PixelSequence& s = conv.pixels;
  const int row_tiles = conv.outputs / ShiftedTile::kM;
  const int row_tile = static_cast<int>(blockIdx.x) % row_tiles;  // along rows first: they share the pixels
  const int first = static_cast<int>(blockIdx.x) / row_tiles * (kN / 8 * s.group);
  const int chunks = conv.channels / kShiftedChannels;
  constexpr int kStageFloats = sizeof(ShiftedStage) / sizeof(float);
  constexpr int kWeightFloats = sizeof(shared.stages[0].weight) / sizeof(float);
  const float* weight = conv.weight + static_cast<long long>(row_tile) * chunks * kWeightFloats;
  const StridedFactor a =
      strided_factor(shared.stages[0].weight[0][0][0], ShiftedTile::kM * kCoreK, kCoreRows * kCoreK);
  const StridedFactor b =
      strided_factor(shared.stages[0].window[0][0], ShiftedTile::kWindow * kCoreK, s.group * kCoreK);

  WindowLoader loader(conv, first, s.window(kN));
  find_results<kN>(conv, first, shared.offsets);
  start_weight(shared.stages[0], weight);
  loader.load();
  float sums[kN / 2] = {};
  int stage = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    loader.put(shared.stages[stage]);
    wait_for_copies();
    publish_to_tensor_cores();
    wait_for_products();  // of the stage that is filled next
    __syncthreads();      // the stage is complete, and no warpgroup reads the one that is filled next
    begin_products();
#pragma unroll
    for (int tap = 0; tap < kShiftedTaps; ++tap) {
      start_product(sums, a + (stage * kStageFloats + tap * kShiftedChannels * ShiftedTile::kM),
                    b + (stage * kStageFloats + (tap / 3 * s.pitch + tap % 3 * s.step) * kCoreK));
    }
    end_products();
    stage = 1 - stage;
    if (chunk + 1 < chunks) {
      weight += kWeightFloats;
      start_weight(shared.stages[stage], weight);
      loader.load();
    }
  }
  wait_for_products();
  __syncthreads();  // no warp's products read the stages, whose memory the rows use
  static_assert(sizeof(shared.stages) >= sizeof(RowsToStore[kWarpgroup / 32]));
  store_shifted<kN>(conv, row_tile * ShiftedTile::kM, shared.offsets, sums,
                    reinterpret_cast<RowsToStore*>(shared.stages));
}

}  // namespace stagecoach::cuda
