#pragma once
/// @file
/// Convolutions with many channels, such as those of a residual network.
///
/// One image per lane (lanes.h) leaves lanes idle if a batch has few images, and takes long strides through memory if
/// images have many channels. Here all three operations are matrix products by implicit im2col (im2col.h):
///
///     y           [O, N P Q] = weight [O, C K K]   x  im2col of x
///     grad_x      [C, N H W] = weight [C, K K O]   x  im2col of grad_y, each phase (phase.h) with its own taps
///     grad_weight [O, C K K] = grad_y [O, N P Q]   x  im2col of x, transposed

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/im2col.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/panel_product.h"
#include "core/kernels/cpu/phase.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Returns whether these products are faster, which depends on the layer alone, not on the batch.
inline bool is_wide(const ConvShape& s) { return s.channels >= 64 && s.outputs >= 64; }

/// Writes to result [N, channels, …], at the positions of `runs`, the sums [channels, kPanel] of the panel that begins
/// at `position`; `plane` is the stride to the next channel.
template <class T>
void scatter(const Runs<T>& runs, std::int64_t position, std::int64_t channels, std::int64_t plane, const T* sums,
             T* result) {
  runs.visit(position, [&](const std::int64_t* starts, std::int64_t count, auto length) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(result + c * plane + starts[i], sums + c * kPanel<T> + i * length, length * sizeof(T));
      }
    }
  });
}

/// result [N, M, …] at the positions of `results` = a [M, K] times im2col [K, positions], plus bias [M].
template <class T>
void multiply_im2col(Device device, const ProductShape& shape, const T* a, const T* bias, const Im2col<T>& im2col,
                     const Runs<T>& results, std::int64_t plane, T* result) {
  panel_product<T>(
      device, shape, a, bias,
      [&](std::int64_t position, std::int64_t k, std::int64_t rows, T* panel) {
        im2col.gather(position, k, rows, panel);
      },
      [&](std::int64_t position, const T* sums) { scatter(results, position, shape.m, plane, sums, result); });
}

inline Grid output_positions(const ConvShape& s) { return {s.samples, s.rows(), s.columns()}; }

/// Returns the inputs x under the windows of a convolution.
template <class T>
Im2col<T> input_im2col(Device device, const ConvShape& s, const PaddedImages<T>& x) {
  const std::int64_t k = s.window.kernel;
  const std::int64_t stride = s.window.stride;
  const GridLayout layout{0, s.channels * x.plane(), stride * x.width(), x.column_offset(stride)};
  const auto shift = [&](std::int64_t c, std::int64_t i, std::int64_t j) {
    return c * x.plane() + i * x.width() + x.column_offset(j);
  };
  return {device, output_positions(s), layout, {s.channels, k, k}, shift, x.data()};
}

template <class T>
PaddedImages<T> padded_input(Device device, const ConvShape& s, const T* x) {
  const std::int64_t padding = s.window.padding;
  const std::int64_t stride = s.window.kernel == 1 ? 1 : s.window.stride;  // a single tap does not justify a copy
  return {device, s.samples * s.channels, s.height, s.width, {padding, padding, padding}, stride, x};
}

template <class T>
void wide_conv2d(Device device, const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  const std::int64_t plane = s.rows() * s.columns();
  const PaddedImages<T> padded = padded_input(device, s, x);
  const Im2col<T> im2col = input_im2col(device, s, padded);
  const Grid grid = output_positions(s);
  const Runs<T> results(device, grid, {0, s.outputs * plane, s.columns(), 1});
  const std::int64_t taps = s.channels * s.window.kernel * s.window.kernel;
  multiply_im2col(device, {s.outputs, grid.count(), taps}, weight, bias, im2col, results, plane, y);
}

/// Transposes grad_y [N, O, P, Q] to [O, N, P, Q].
template <class T>
void outputs_first(Device device, const ConvShape& s, const T* grad_y, T* transposed) {
  const std::int64_t plane = s.rows() * s.columns();
  parallel_for(device, s.outputs, [&](std::int64_t o) {
    for (std::int64_t n = 0; n < s.samples; ++n) {
      std::copy_n(grad_y + (n * s.outputs + o) * plane, plane, transposed + (o * s.samples + n) * plane);
    }
  });
}

template <class T>
void wide_conv2d_grad_weight(Device device, const ConvShape& s, const T* grad_y, const T* x, T* grad_weight) {
  const std::int64_t taps = s.channels * s.window.kernel * s.window.kernel;
  const std::int64_t positions = output_positions(s).count();
  const PaddedImages<T> padded = padded_input(device, s, x);
  const Im2col<T> im2col = input_im2col(device, s, padded);
  const Workspace<T> grads(device, s.outputs * positions);  // [O, N, P, Q]
  outputs_first(device, s, grad_y, grads.data());
  panel_product<T>(
      device, {s.outputs, taps, positions}, grads.data(), nullptr,
      [&](std::int64_t tap, std::int64_t position, std::int64_t count, T* panel) {
        T block[kPanel<T> * kPanel<T>] = {};  // [taps, positions]
        for (std::int64_t p = 0; p < count; p += kPanel<T>) {
          im2col.gather(position + p, tap, std::min(kPanel<T>, taps - tap), block);
          transpose_block(kPanel<T>, std::min(kPanel<T>, count - p), block, kPanel<T>, panel + p * kPanel<T>,
                          kPanel<T>);
        }
      },
      [&](std::int64_t tap, const T* sums) {
        for (std::int64_t o = 0; o < s.outputs; ++o) {
          std::copy_n(sums + o * kPanel<T>, std::min(kPanel<T>, taps - tap), grad_weight + o * taps + tap);
        }
      });
}

/// The weight [O, C, K, K] for the input gradient: with the outputs last, and only the taps of one phase.
template <class T>
class TransposedWeight {
 public:
  TransposedWeight(Device device, const ConvShape& s, const T* weight)
      : shape_(s),
        all_(device, s.channels * taps() * s.outputs),
        of_phase_(device, s.window.stride == 1 || taps() == 1 ? 0 : s.channels * taps() * s.outputs) {
    transpose_matrix(device, s.outputs, s.channels * taps(), weight, all_.data());  // [C, K, K, O]
  }

  /// Returns the weight [C, rows.taps, columns.taps, O]; valid until the next call.
  const T* of(const Phase& rows, const Phase& columns) const {
    if (rows.taps * columns.taps == taps()) {
      return all_.data();
    }
    T* to = of_phase_.data();
    for (std::int64_t c = 0; c < shape_.channels; ++c) {
      for (std::int64_t i = 0; i < rows.taps; ++i) {
        for (std::int64_t j = 0; j < columns.taps; ++j, to += shape_.outputs) {
          const std::int64_t row = rows.tap + i * shape_.window.stride;
          const std::int64_t column = columns.tap + j * shape_.window.stride;
          const std::int64_t tap = (c * shape_.window.kernel + row) * shape_.window.kernel + column;
          std::copy_n(all_.data() + tap * shape_.outputs, shape_.outputs, to);
        }
      }
    }
    return of_phase_.data();
  }

 private:
  std::int64_t taps() const { return shape_.window.kernel * shape_.window.kernel; }
  ConvShape shape_;
  Workspace<T> all_;
  Workspace<T> of_phase_;
};

template <class T>
void wide_conv2d_grad_input(Device device, const ConvShape& s, const T* grad_y, const T* weight, T* grad_x) {
  const std::int64_t stride = s.window.stride;
  const std::int64_t plane = s.height * s.width;
  const Border border = gradient_border(s);
  const PaddedImages<T> grads(device, s.samples * s.outputs, s.rows(), s.columns(), border, 1, grad_y);
  const TransposedWeight<T> transposed(device, s, weight);
  for (std::int64_t h = 0; h < std::min(stride, s.height); ++h) {
    for (std::int64_t w = 0; w < std::min(stride, s.width); ++w) {
      const Phase rows(h, s.height, s.window);
      const Phase columns(w, s.width, s.window);
      const Grid grid{s.samples, rows.positions, columns.positions};
      const std::int64_t first = (border.before + rows.output) * grads.width() + border.before + columns.output;
      // The outputs are innermost, as in the weight.
      const auto shift = [&](std::int64_t i, std::int64_t j, std::int64_t o) {
        return o * grads.plane() - i * grads.width() - j;
      };
      const Im2col<T> im2col(device, grid, {first, s.outputs * grads.plane(), grads.width(), 1},
                             {rows.taps, columns.taps, s.outputs}, shift, grads.data());
      const Runs<T> results(device, grid, {h * s.width + w, s.channels * plane, stride * s.width, stride});
      multiply_im2col<T>(device, {s.channels, grid.count(), rows.taps * columns.taps * s.outputs},
                         transposed.of(rows, columns), nullptr, im2col, results, plane, grad_x);
    }
  }
}

}  // namespace stagecoach::cpu
