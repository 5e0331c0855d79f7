#include "core/kernels/cpu/conv2d.h"

#include "core/kernels/cpu/channels.h"
#include "core/kernels/cpu/dot_tile.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/phase.h"
#include "core/kernels/cpu/position_tiles.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/wide_conv2d.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

/// Runs the tiles of one convolution row by row: `outputs` x `columns` sums in each of `rows` rows. `first` is the call
/// of the first tile; `x_row` and `y_row` are the strides to the next row; tap_rows(row) returns the kernel rows that
/// are inside the image: the others would only add zeros.
template <class T, class TapRangeOf>
void run_tiles(std::int64_t outputs, std::int64_t rows, std::int64_t columns, std::int64_t x_row, std::int64_t y_row,
               const TileCall<T>& first, const TapRangeOf& tap_rows) {
  const Parts output_parts(outputs, kMaxRows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const TapRange taps = tap_rows(row);
    for (std::int64_t o = 0; o < output_parts.count; ++o) {
      const std::int64_t output = output_parts.begin(o);
      const int height = output_parts.size(o);
      const Parts column_parts(columns, max_columns(height));
      for (std::int64_t c = 0; c < column_parts.count; ++c) {
        const std::int64_t column = column_parts.begin(c);
        TileCall<T> call = first;
        call.taps.rows = taps.count;
        call.x += row * x_row + taps.first * first.x_steps.row + column * first.x_steps.tile;
        call.weight += taps.first * first.weight_steps.row + output * first.weight_steps.tile;
        call.bias = first.bias == nullptr ? nullptr : first.bias + output;
        call.y += row * y_row + output * first.y_row + column * first.y_column;
        run_tile<T>(height, column_parts.size(c), call);
      }
    }
  }
}

/// Transposes weight [O, C, K, K] to [C, O, K, K]: the input gradient sums over the outputs, which should be close in
/// memory.
template <class T>
void exchange_outputs_and_channels(const ConvShape& s, const T* weight, T* transposed) {
  const std::int64_t kernel = s.window.kernel * s.window.kernel;
  for (std::int64_t c = 0; c < s.channels; ++c) {
    for (std::int64_t o = 0; o < s.outputs; ++o) {
      std::copy_n(weight + (o * s.channels + c) * kernel, kernel, transposed + (c * s.outputs + o) * kernel);
    }
  }
}

template <class T>
void narrow_conv2d(Device device, const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  constexpr std::int64_t kLane = kLanes<T>;
  const std::int64_t k = s.window.kernel;
  const ImageLayout in(s.channels, s.height, s.width, s.window.padding, s.window.padding);
  const Axis rows{s.rows(), k, -s.window.padding, s.window.stride, s.height};
  const std::int64_t out_size = s.outputs * s.rows() * s.columns();
  parallel_for(device, groups_of<T>(s.samples), [&](std::int64_t group) {
    const std::int64_t first = group * kLane;
    Workspace<T> images(device, in.size() * kLane);  // [C, H + 2 padding, W + 2 padding, lanes]
    Workspace<T> result(device, out_size * kLane);   // [O, P, Q, lanes]
    images_to_lanes(in, x + first * s.channels * s.height * s.width, s.samples - first, images.data());
    TileCall<T> call{};
    call.taps = {s.channels, k, k};
    call.x = images.data();
    call.x_steps = {in.plane() * kLane, in.padded_width * kLane, kLane, s.window.stride * kLane};
    call.weight = weight;
    call.weight_steps = {k * k, k, 1, s.channels * k * k};
    call.bias = bias;
    call.y = result.data();
    call.y_row = s.rows() * s.columns() * kLane;
    call.y_column = kLane;
    run_tiles(s.outputs, s.rows(), s.columns(), s.window.stride * in.padded_width * kLane, s.columns() * kLane, call,
              [&](std::int64_t row) { return rows.taps_at(row); });
    lanes_to_rows(result.data(), s.samples - first, out_size, y + first * out_size, out_size);
  });
}

template <class T>
void narrow_conv2d_grad_input(Device device, const ConvShape& s, const T* grad_y, const T* weight, T* grad_x) {
  constexpr std::int64_t kLane = kLanes<T>;
  const std::int64_t k = s.window.kernel;
  const std::int64_t stride = s.window.stride;
  const std::int64_t out_size = s.outputs * s.rows() * s.columns();
  const std::int64_t in_size = s.channels * s.height * s.width;
  const Border border = gradient_border(s);
  const ImageLayout out(s.outputs, s.rows(), s.columns(), border.before, border.below, border.right);
  const Workspace<T> transposed(device, s.channels * s.outputs * k * k);
  exchange_outputs_and_channels(s, weight, transposed.data());
  parallel_for(device, groups_of<T>(s.samples), [&](std::int64_t group) {
    const std::int64_t first = group * kLane;
    Workspace<T> grads(device, out.size() * kLane);  // [O, before + P + below, before + Q + right, lanes]
    Workspace<T> result(device, in_size * kLane);    // [C, H, W, lanes]
    images_to_lanes(out, grad_y + first * out_size, s.samples - first, grads.data());
    for (std::int64_t h = 0; h < std::min(stride, s.height); ++h) {
      for (std::int64_t w = 0; w < std::min(stride, s.width); ++w) {
        const Phase rows(h, s.height, s.window);
        const Phase columns(w, s.width, s.window);
        TileCall<T> call{};
        call.taps = {s.outputs, rows.taps, columns.taps};
        call.x =
            grads.data() + ((border.before + rows.output) * out.padded_width + border.before + columns.output) * kLane;
        call.x_steps = {out.plane() * kLane, -out.padded_width * kLane, -kLane, kLane};
        call.weight = transposed.data() + rows.tap * k + columns.tap;
        call.weight_steps = {k * k, stride * k, stride, s.outputs * k * k};
        call.y = result.data() + (h * s.width + w) * kLane;
        call.y_row = s.height * s.width * kLane;
        call.y_column = stride * kLane;
        run_tiles(s.channels, rows.positions, columns.positions, out.padded_width * kLane, stride * s.width * kLane,
                  call, [&](std::int64_t row) {
                    const std::int64_t last = rows.output + row;  // the output row of kernel row 0
                    const std::int64_t first_tap = std::clamp<std::int64_t>(last - s.rows() + 1, 0, rows.taps);
                    return TapRange{first_tap, std::clamp<std::int64_t>(last + 1, first_tap, rows.taps) - first_tap};
                  });
      }
    }
    lanes_to_rows(result.data(), s.samples - first, in_size, grad_x + first * in_size, in_size);
  });
}

template <class T>
void narrow_conv2d_grad_weight(Device device, const ConvShape& s, const T* grad_y, const T* x, T* grad_weight) {
  constexpr std::int64_t kLane = kLanes<T>;
  const ImageLayout in(s.channels, s.height, s.width, s.window.padding, s.window.padding);
  const ImageLayout out(s.outputs, s.rows(), s.columns(), 0, 0);
  const std::int64_t groups = groups_of<T>(s.samples);
  Workspace<T> images(device, groups * in.size() * kLane);  // [G, C, H + 2 padding, W + 2 padding, lanes]
  Workspace<T> grads(device, groups * out.size() * kLane);  // [G, O, P, Q, lanes]
  parallel_for(device, groups, [&](std::int64_t group) {
    const std::int64_t first = group * kLane;
    images_to_lanes(in, x + first * s.channels * s.height * s.width, s.samples - first,
                    images.data() + group * in.size() * kLane);
    images_to_lanes(out, grad_y + first * out.size(), s.samples - first, grads.data() + group * out.size() * kLane);
  });
  sum_over_positions(device, DotShape{s, in, out, groups}, images.data(), grads.data(), grad_weight);
}

ConvShape shape_of(const Tensor& x, const Tensor& weight, const Window& window) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), weight.size(0), window};
}

void conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y) {
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const ConvShape s = shape_of(x, weight, window);
    const auto convolve = is_wide(s) ? wide_conv2d<T> : narrow_conv2d<T>;
    convolve(x.device(), s, x.data<T>(), weight.data<T>(), bias.defined() ? bias.data<T>() : nullptr,
             y.mutable_data<T>());
  });
}

void conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x) {
  dispatch_floating(grad_y.dtype(), "conv2d_grad_input", [&]<class T>() {
    const ConvShape s = shape_of(grad_x, weight, window);
    const auto convolve = is_wide(s) ? wide_conv2d_grad_input<T> : narrow_conv2d_grad_input<T>;
    convolve(grad_y.device(), s, grad_y.data<T>(), weight.data<T>(), grad_x.mutable_data<T>());
  });
}

void conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                        Tensor& grad_bias) {
  if (grad_bias.defined()) {
    channel_sums(grad_y, grad_bias);
  }
  if (!grad_weight.defined()) {
    return;
  }
  dispatch_floating(grad_y.dtype(), "conv2d_grad_weight", [&]<class T>() {
    const ConvShape s = shape_of(x, grad_weight, window);
    const auto convolve = is_wide(s) ? wide_conv2d_grad_weight<T> : narrow_conv2d_grad_weight<T>;
    convolve(grad_y.device(), s, grad_y.data<T>(), x.data<T>(), grad_weight.mutable_data<T>());
  });
}

}  // namespace

void add_conv2d(Tables& tables) {
  tables.add<&Kernels::conv2d>("conv2d", conv2d);
  tables.add<&Kernels::conv2d_grad_input>("conv2d_grad_input", conv2d_grad_input);
  tables.add<&Kernels::conv2d_grad_weight>("conv2d_grad_weight", conv2d_grad_weight);
}

}  // namespace stagecoach::cpu
