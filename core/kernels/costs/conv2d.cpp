#include "core/kernels/cpu/conv2d.h"

#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/phase.h"
#include "core/kernels/cpu/wide_conv2d.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

using cpu::ConvShape;
using cpu::ImageLayout;

ConvShape conv_shape(const Tensor& x, const Tensor& y, const Window& window) {
  return {x.size(0), x.size(1), x.size(2), x.size(3), y.size(1), window};
}

std::int64_t taps(const ConvShape& s) { return s.window.kernel * s.window.kernel; }
std::int64_t positions(const ConvShape& s) { return s.rows() * s.columns(); }

/// Returns the operations of each of the three convolutions of a layer.
std::int64_t conv_flops(const ConvShape& s) { return 2 * s.samples * s.outputs * positions(s) * s.channels * taps(s); }

CostKind kind_of(const ConvShape& s) { return is_wide(s) ? CostKind::wide_convolution : CostKind::convolution; }

// ---- The CPU's workspace, as core/kernels/cpu/conv2d.cpp and wide_conv2d.h allocate it

constexpr std::int64_t kTileRows = 6;     // of a register tile in 16 vector registers
constexpr std::int64_t kTileColumns = 2;  // vectors

/// Returns the size of the largest of the parts that are at most `largest` long.
std::int64_t part_size(std::int64_t length, std::int64_t largest) {
  const std::int64_t parts = std::max<std::int64_t>((length + largest - 1) / largest, 1);
  return (length + parts - 1) / parts;
}

/// Returns the elements for a convolution of images in `layout` to `channels` planes of `plane` elements: the weight,
/// the images of a block, and the sums for them.
std::int64_t conv_workspace(const ConvShape& s, const CpuVectors& vectors, const ImageLayout& layout,
                            std::int64_t channels, std::int64_t plane) {
  if (!is_wide(s)) {
    return (layout.size() + channels * plane) * vectors.lanes;
  }
  const std::int64_t weight = vectors.padded(s.outputs) * vectors.padded(s.channels) * taps(s);
  const std::int64_t images = part_size(s.samples, kTileRows * plane <= 512 ? kTileRows : 1);
  return weight + images * (vectors.padded(layout.channels) * layout.plane() + kTileColumns * plane * vectors.lanes);
}

/// Returns the operations with which the lanes are idle of a convolution to `channels` planes: a lane is an image, or a
/// channel of the result in wide layers.
std::int64_t idle_flops(const ConvShape& s, const CpuVectors& vectors, std::int64_t channels) {
  return vectors.idle_flops(conv_flops(s), is_wide(s) ? channels : s.samples);
}

std::int64_t grad_input_workspace(const ConvShape& s, const CpuVectors& vectors) {
  const cpu::Border border = gradient_border(s);
  const ImageLayout grads(s.outputs, s.rows(), s.columns(), border.before, border.below, border.right);
  const std::int64_t turned_weight = is_wide(s) ? 0 : s.channels * s.outputs * taps(s);
  return turned_weight + conv_workspace(s, vectors, grads, s.channels, s.height * s.width);
}

std::int64_t grad_weight_workspace(const ConvShape& s, const CpuVectors& vectors) {
  const std::int64_t grads = s.outputs * positions(s);
  if (!is_wide(s)) {
    const ImageLayout images(s.channels, s.height, s.width, s.window.padding, s.window.padding);
    return vectors.padded(s.samples) * (images.size() + grads);
  }
  const std::int64_t images = part_size(s.samples, std::max<std::int64_t>(1024 / positions(s), 1));
  return vectors.padded(s.outputs) * vectors.padded(s.channels) * taps(s) +
         images * (vectors.padded(s.outputs) * positions(s) + s.height * s.width * vectors.lanes);
}

// ---- The GPU

/// Returns the cost of a convolution to the pixels of a stride in each direction, one product after the other
/// (core/kernels/cuda/conv2d.cu).
BackendCost cuda_grad_input(const ConvShape& s, DType dtype) {
  const std::int64_t stride = s.window.stride;
  const auto product = [&](const cpu::Phase& rows, const cpu::Phase& columns) {
    return cuda_product(s.channels, s.samples * rows.positions * columns.positions,
                        s.outputs * rows.taps * columns.taps, dtype);
  };
  const auto row_phase = [&](std::int64_t first) { return cpu::Phase(first, s.height, s.window); };
  const auto column_phase = [&](std::int64_t first) { return cpu::Phase(first, s.width, s.window); };
  if (stride == 1) {
    return product(row_phase(0), column_phase(0));
  }
  const std::int64_t down = std::min(stride, s.height);
  const std::int64_t across = std::min(stride, s.width);
  BackendCost all;  // the last pass, which puts the pixels of all products where they belong
  for (std::int64_t row = 0; row < down; ++row) {
    for (std::int64_t column = 0; column < across; ++column) {
      if (row_phase(row).taps * column_phase(column).taps > 0) {
        const BackendCost one = product(row_phase(row), column_phase(column));
        all.launches += one.launches;
        all.workspace_bytes = std::max(all.workspace_bytes, one.workspace_bytes);
        all.idle_flops += one.idle_flops;
      }
    }
  }
  const std::int64_t pixels = row_phase(0).positions * column_phase(0).positions;
  all.workspace_bytes += element_bytes(down * across * s.samples * s.channels * pixels, dtype);
  return all;
}

// ---- The rows of the table

KernelCost conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window, Tensor& y) {
  const ConvShape s = conv_shape(x, y, window);
  const ImageLayout images(s.channels, s.height, s.width, window.padding, window.padding);
  const CpuVectors vectors(x.dtype());
  const std::int64_t workspace = conv_workspace(s, vectors, images, s.outputs, positions(s));
  return {
      .kind = kind_of(s),
      .dtype = x.dtype(),
      .flops = conv_flops(s),
      .bytes_read = bytes_of(x, weight, bias),
      .bytes_written = bytes_of(y),
      .cpu = {.workspace_bytes = element_bytes(workspace, x.dtype()), .idle_flops = idle_flops(s, vectors, s.outputs)},
      .cuda = cuda_product(s.outputs, s.samples * positions(s), s.channels * taps(s), x.dtype())};
}

KernelCost conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window, Tensor& grad_x) {
  const ConvShape s = conv_shape(grad_x, grad_y, window);
  const DType dtype = grad_y.dtype();
  const CpuVectors vectors(dtype);
  return {.kind = kind_of(s),
          .dtype = dtype,
          .flops = conv_flops(s),
          .bytes_read = bytes_of(grad_y, weight),
          .bytes_written = bytes_of(grad_x),
          .cpu = {.workspace_bytes = element_bytes(grad_input_workspace(s, vectors), dtype),
                  .idle_flops = idle_flops(s, vectors, s.channels)},
          .cuda = cuda_grad_input(s, dtype)};
}

KernelCost conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window, Tensor& grad_weight,
                              Tensor& grad_bias) {
  const ConvShape s = conv_shape(x, grad_y, window);
  const DType dtype = grad_y.dtype();
  const bool has_weight = grad_weight.defined();
  const CpuVectors vectors(dtype);
  const std::int64_t workspace = has_weight ? grad_weight_workspace(s, vectors) : 0;
  return {.kind = has_weight ? kind_of(s) : CostKind::reduction,
          .dtype = dtype,
          .flops = (has_weight ? conv_flops(s) : 0) + (grad_bias.defined() ? grad_y.numel() : 0),
          .bytes_read = has_weight ? bytes_of(grad_y, x) : bytes_of(grad_y),
          .bytes_written = bytes_of(grad_weight, grad_bias),
          .cpu = {.workspace_bytes = element_bytes(workspace, dtype),
                  .idle_flops = has_weight ? idle_flops(s, vectors, s.outputs) : 0},
          .cuda = cuda_product(s.outputs, s.channels * taps(s), s.samples * positions(s), dtype,
                               grad_bias.defined() ? 1 : 0)};
}

}  // namespace

void add_conv2d(KernelCosts& table) {
  table.conv2d = conv2d;
  table.conv2d_grad_input = conv2d_grad_input;
  table.conv2d_grad_weight = conv2d_grad_weight;
}

}  // namespace stagecoach::costs
