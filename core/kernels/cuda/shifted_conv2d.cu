/// @file
/// Launches the kernels of shifted_conv2d.cuh, strided_conv2d.cuh, strided_input_gradient.cuh and
/// shifted_weight_gradient.cuh, and prepares the weight for all but the last.

#include <algorithm>
#include <utility>

#include "core/cuda_backend.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/products.h"
#include "core/kernels/cuda/shifted_conv2d.cuh"
#include "core/kernels/cuda/shifted_weight_gradient.cuh"
#include "core/kernels/cuda/strided_conv2d.cuh"
#include "core/kernels/cuda/strided_input_gradient.cuh"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {
namespace {

/// The weight [O, C, K, K] as the factor of a convolution from K channels to M. For the gradient of the input K is O
/// and M is C, and the taps are in reverse order.
struct WeightToPack {
  const float* weight;
  int k_stride;
  int m_stride;
  bool reversed;
};

/// packed [M / 64, K / 8, kTaps, 2, 64, 4]: tiles in the order in which the kernels store them in shared memory,
/// rounded to TF32. A thread per (m, k).
template <int kTaps>
__global__ void pack_shifted_weight(int count, int chunks, WeightToPack from, float* packed) {
  const auto at = static_cast<int>(element());
  if (at >= count) {
    return;
  }
  constexpr int kM = ShiftedTile::kM;
  constexpr int kFloats = kM * kShiftedChannels;  // of a tap
  const int in_chunk = at % kFloats;              // [2, kM, 4]
  const int chunk = at / kFloats;
  const int k = chunk % chunks * kShiftedChannels + in_chunk / (kM * kCoreK) * kCoreK + in_chunk % kCoreK;
  const int m = chunk / chunks * kM + in_chunk / kCoreK % kM;
  const float* weight =
      from.weight + static_cast<long long>(m) * from.m_stride + static_cast<long long>(k) * from.k_stride;
  auto* to = reinterpret_cast<std::uint32_t*>(packed) + static_cast<long long>(chunk) * kTaps * kFloats + in_chunk;
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    to[tap * kFloats] = round_to_tf32(weight[from.reversed ? kTaps - 1 - tap : tap]);
  }
}

/// The weight of a convolution from K channels to M, packed.
template <int kTaps>
Workspace<float> packed_weight(Device device, const WeightToPack& weight, int channels, int outputs) {
  Workspace<float> packed(std::int64_t{1} * outputs * channels * kTaps, device);
  launch_elements(device, pack_shifted_weight<kTaps>, outputs * channels, channels / kShiftedChannels, weight,
                  packed.data());
  return packed;
}

template <int kN>
void run_tiles(Device device, const ShiftedConv& conv) {
  const int blocks = conv.pixels.tiles(kN) * (conv.outputs / ShiftedTile::kM);
  launch(shifted_conv2d_tiles<kN>, static_cast<unsigned>(blocks), ShiftedTile::kThreads, sizeof(ShiftedShared),
         compute_stream(device), conv);
}

/// Returns the width of the tiles, on which the result does not depend. An SM has three blocks at a time, so the time
/// is that of the waves of blocks, whole or not, and a wave takes as long as its tiles are wide.
int columns_of_tiles(const ShiftedConv& conv) {
  constexpr int kAtOnce = ShiftedTile::kBlocks * 132;  // SMs of an H100 or H200
  constexpr int kForWeights = 32;                      // columns that take as much time as loading the weights
  const auto time = [&conv](int columns) {
    const int blocks = conv.pixels.tiles(columns) * (conv.outputs / ShiftedTile::kM);
    return (blocks + kAtOnce - 1LL) / kAtOnce * (columns + kForWeights);
  };
  return std::min({256, 224, 192, 128}, [&time](int one, int other) { return time(one) < time(other); });
}

void run(Device device, const WeightToPack& weight, ShiftedConv conv, int columns) {
  if (conv.pixels.samples == 0) {
    return;
  }
  auto packed = packed_weight<kShiftedTaps>(device, weight, conv.channels, conv.outputs);
  conv.weight = packed.data();
  switch (columns == 0 ? columns_of_tiles(conv) : columns) {
    case 256:
      return run_tiles<256>(device, conv);
    case 224:
      return run_tiles<224>(device, conv);
    case 192:
      return run_tiles<192>(device, conv);
    default:
      return run_tiles<128>(device, conv);
  }
}

/// Whether a convolution of images [N, C, H, W] to O channels is one for shifted_conv2d.
bool is_shifted(std::int64_t channels, std::int64_t outputs, const Tensor& images, const Window& window) {
  const std::int64_t width = images.size(3);
  return window.kernel == 3 && window.stride == 1 && window.padding == 1 && channels % kShiftedChannels == 0 &&
         channels > 0 && outputs % 64 == 0 && outputs > 0 && images.size(2) > 0 && width > 0 &&
         PixelSequence(1, 1, static_cast<int>(std::min<std::int64_t>(width, 1 << 16))).window(ShiftedTile::kN) <=
             ShiftedTile::kWindow;
}

ShiftedConv shifted_conv(const Tensor& x, const Tensor& bias, Tensor& y) {
  to_int(x.numel(), kMaxElements);
  to_int(y.numel(), kMaxElements);
  return {x.data<float>(),
          nullptr,
          data_or_null<float>(bias),
          y.mutable_data<float>(),
          to_int(x.size(1)),
          to_int(y.size(1)),
          PixelSequence(to_int(x.size(0)), to_int(x.size(2)), to_int(x.size(3)))};
}

// ---- Stride 2

/// Whether x [N, C, H, W] and y [N, O, P, Q] have extents for the kernels with stride 2.
bool is_strided(const Tensor& x, const Tensor& y, const Window& window) {
  const std::int64_t columns = y.size(3);
  return x.dtype() == DType::float32 && uses_tf32(x.device()) && has_warpgroups(x.device()) && window.stride == 2 &&
         window.padding == window.kernel / 2 && x.numel() > 0 && y.numel() > 0 &&
         (columns == 4 || columns == 8 || columns == 16) && x.size(3) == columns * 2 && x.size(2) == y.size(2) * 2;
}

/// Calls body<Q>() for images y of Q columns.
template <class Body>
void with_columns(const Tensor& y, const Body& body) {
  switch (y.size(3)) {
    case 4:
      return body.template operator()<4>();
    case 8:
      return body.template operator()<8>();
    default:
      return body.template operator()<16>();
  }
}

/// Returns the tiles of y [N, O, P, Q], `channel_tiles` for each pixel, and how many there are.
template <class Tile>
std::pair<StridedTiles, int> strided_tiles(const Tensor& y, int channel_tiles) {
  const int down = (to_int(y.size(2)) + Tile::kRows - 1) / Tile::kRows;
  const int groups = (to_int(y.size(0)) + Tile::kSamples - 1) / Tile::kSamples;
  return {StridedTiles{FastDivmod(channel_tiles), FastDivmod(down)}, groups * down * channel_tiles};
}

template <class Window>
void run_strided(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  const int channels = to_int(x.size(1));
  const int outputs = to_int(y.size(1));
  auto packed = packed_weight<9>(x.device(), {weight.data<float>(), 9, channels * 9, false}, channels, outputs);
  const auto [tiles, blocks] = strided_tiles<Window>(y, outputs / (2 * kWarpgroupRows));
  const StridedConv conv{x.data<float>(),
                         packed.data(),
                         data_or_null<float>(bias),
                         y.mutable_data<float>(),
                         to_int(x.size(0)),
                         channels,
                         outputs,
                         to_int(y.size(2)),
                         tiles};
  launch(strided_conv2d_tiles<Window>, static_cast<unsigned>(blocks), Window::kThreads, sizeof(ConvShared<Window>),
         compute_stream(x.device()), conv);
}

template <class Window>
void run_strided_gradient(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) {
  constexpr int kTaps = Window::kKernel * Window::kKernel;
  const int channels = to_int(grad_x.size(1));
  const int outputs = to_int(grad_y.size(1));
  auto packed =
      packed_weight<kTaps>(grad_y.device(), {weight.data<float>(), channels * kTaps, kTaps, false}, outputs, channels);
  const auto [tiles, blocks] = strided_tiles<Window>(grad_y, channels / kWarpgroupRows);
  const StridedGradient g{grad_y.data<float>(),   packed.data(), grad_x.mutable_data<float>(),
                          to_int(grad_y.size(0)), outputs,       channels,
                          to_int(grad_y.size(2)), tiles};
  launch(strided_input_gradient_tiles<Window>, static_cast<unsigned>(2 * blocks), Window::kThreads,
         sizeof(InputGradientShared<Window>), compute_stream(grad_y.device()), g);
}

// ---- The gradient of the weight

template <class Lines>
void run_lines(Device device, ShiftedGradient g, int splits) {
  const int groups = (g.samples + Lines::kSamples - 1) / Lines::kSamples;
  g.lines = groups * (g.rows + 1);
  g.lines_per_split = (g.lines + splits - 1) / splits;
  const dim3 grid(static_cast<unsigned>(g.outputs / 64 * (g.channels / 64)), static_cast<unsigned>(splits));
  launch(shifted_weight_gradient<Lines>, grid, Lines::kThreads, sizeof(GradientShared<Lines>), compute_stream(device),
         g);
}

template <int kStride>
void run_lines(Device device, int columns, const ShiftedGradient& g, int splits) {
  constexpr int kMore = 3 - kStride;  // a line of x with stride 2 is twice as long, and there are two
  switch (columns) {
    case 4:
      return run_lines<GradientLines<4, 2 * kMore, kStride>>(device, g, splits);
    case 8:
      return run_lines<GradientLines<8, 2, kStride>>(device, g, splits);
    case 16:
      return run_lines<GradientLines<16, 1, kStride>>(device, g, splits);
    default:
      if constexpr (kStride == 1) {
        return run_lines<GradientLines<32, 1, 1>>(device, g, splits);
      }
  }
}

}  // namespace

bool takes_shifted_weight_gradient(const Tensor& grad_y, const Tensor& x, const Window& window) {
  const std::int64_t columns = grad_y.size(3);
  return x.dtype() == DType::float32 && uses_tf32(x.device()) && has_warpgroups(x.device()) && window.kernel == 3 &&
         (window.stride == 1 || window.stride == 2) && window.padding == 1 && x.size(0) > 0 && grad_y.size(2) > 0 &&
         x.size(1) % 64 == 0 && x.size(1) > 0 && grad_y.size(1) % 64 == 0 && grad_y.size(1) > 0 &&
         (columns == 4 || columns == 8 || columns == 16 || (columns == 32 && window.stride == 1)) &&
         x.size(3) == columns * window.stride && is_aligned<4>(x.data<float>()) && is_aligned<4>(grad_y.data<float>());
}

void shifted_conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight) {
  to_int(x.numel(), kMaxElements);
  to_int(grad_y.numel(), kMaxElements);
  const Device device = x.device();
  const int outputs = to_int(grad_y.size(1));
  const int channels = to_int(x.size(1));
  const int splits = std::max(kTargetBlocks / (outputs / 64 * (channels / 64)), 1);
  Workspace<float> sums(std::int64_t{1} * splits * kShiftedTaps * outputs * channels, device);
  const ShiftedGradient g{grad_y.data<float>(),
                          x.data<float>(),
                          sums.data(),
                          to_int(x.size(0)),
                          outputs,
                          channels,
                          to_int(grad_y.size(2)),
                          to_int(x.size(2)),
                          0,
                          0};
  const int columns = to_int(grad_y.size(3));
  if (window.stride == 1) {
    run_lines<1>(device, columns, g, splits);
  } else {
    run_lines<2>(device, columns, g, splits);
  }
  const int rows = std::min(splits, kMaxTapRows);
  launch(sum_tap_splits, static_cast<unsigned>(outputs * channels / kTapColumns),
         static_cast<unsigned>(rows * kTapColumns), 0, compute_stream(device), sums.data(), splits, outputs, channels,
         grad_weight.mutable_data<float>());
}

bool takes_strided_conv2d(const Tensor& x, const Tensor& y, const Window& window) {
  return is_strided(x, y, window) && window.kernel == 3 && x.size(1) % 8 == 0 && y.size(1) % 128 == 0 &&
         is_aligned<2>(y.data<float>());
}

void strided_conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  to_int(x.numel(), kMaxElements);
  to_int(y.numel(), kMaxElements);
  with_columns(y, [&]<int kColumns>() { run_strided<ConvWindow<kColumns>>(x, weight, bias, y); });
}

bool takes_strided_grad_input(const Tensor& grad_y, const Tensor& grad_x, const Window& window) {
  return is_strided(grad_x, grad_y, window) && (window.kernel == 1 || window.kernel == 3) && grad_x.size(1) % 64 == 0 &&
         grad_y.size(1) % 16 == 0 && is_aligned<4>(grad_x.data<float>());
}

void strided_conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x) {
  to_int(grad_x.numel(), kMaxElements);
  to_int(grad_y.numel(), kMaxElements);
  with_columns(grad_y, [&]<int kColumns>() {
    if (window.kernel == 3) {
      run_strided_gradient<GradientWindow<kColumns, 3>>(grad_y, weight, grad_x);
    } else {
      run_strided_gradient<GradientWindow<kColumns, 1>>(grad_y, weight, grad_x);
    }
  });
}

bool takes_shifted_conv2d(const Tensor& x, const Tensor& y, const Window& window) {
  return x.dtype() == DType::float32 && uses_tf32(x.device()) && has_warpgroups(x.device()) &&
         is_shifted(x.size(1), y.size(1), x, window);
}

void shifted_conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y, int columns) {
  const int channels = to_int(x.size(1));
  run(x.device(), {weight.data<float>(), kShiftedTaps, channels * kShiftedTaps, false}, shifted_conv(x, bias, y),
      columns);
}

void shifted_conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x, int columns) {
  const int channels = to_int(grad_x.size(1));
  run(grad_y.device(), {weight.data<float>(), channels * kShiftedTaps, kShiftedTaps, true},
      shifted_conv(grad_y, {}, grad_x), columns);
}

}  // namespace stagecoach::cuda
