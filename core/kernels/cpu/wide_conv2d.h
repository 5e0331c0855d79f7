#pragma once
/// @file
/// Convolutions with many channels, such as those of a residual network.
///
/// One image per lane (lanes.h) leaves lanes idle if a batch has few images, and takes long strides through memory if
/// images have many channels. Here one channel of the result is in each lane (channel_lanes.h). The register tile
/// (tile.h) then multiplies a vector of weights by one input, broadcast:
///
///     y           [n, p, q, o]  += x      [n, p', q', c]  weight [i, j, c, o]
///     grad_x      [n, h, w, c]  += grad_y [n, p', q', o]  weight [i, j, o, c]
///     grad_weight [c, i, j, o]  += x      [n, p', q', c]  grad_y [n, p, q, o]
///
/// Such a direct convolution (Georganas et al. 2018) gathers nothing, and reads its input once into lanes, whereas a
/// product by implicit im2col copies it once per tap. Blocks of images are small enough for the second-level cache.
/// The convolutions of a step of resnet18 take 0.84 of the time that im2col took (docs/measurements/cpu_epoch.md).

#include <algorithm>
#include <cstdint>

#include "core/kernels/cpu/channel_lanes.h"
#include "core/kernels/cpu/conv2d.h"
#include "core/kernels/cpu/lanes.h"
#include "core/kernels/cpu/packed_weight.h"
#include "core/kernels/cpu/padded_images.h"
#include "core/kernels/cpu/phase.h"
#include "core/kernels/cpu/position_tiles.h"
#include "core/kernels/cpu/tile.h"
#include "core/kernels/cpu/weight_sums.h"
#include "core/kernels/cpu/workspace.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {

/// Returns whether this is faster, which depends on the layer alone, not on the batch.
inline bool is_wide(const ConvShape& s) { return s.channels >= 64 && s.outputs >= 64; }

/// Calls body(first, count) for blocks of images, in parallel: as many as a tile has rows if they are small, or one.
template <class Body>
void for_each_image_block(Device device, std::int64_t samples, std::int64_t positions, const Body& body) {
  constexpr std::int64_t kPositions = 512;
  const Parts blocks(samples, kMaxRows * positions <= kPositions ? kMaxRows : 1);
  parallel_for(device, blocks.count, [&](std::int64_t block) { body(blocks.begin(block), blocks.size(block)); });
}

/// Adds the products of all channels of `images` with the taps of `rows` and `columns`. `weight` is at the first of
/// these taps, for the first of the vectors of `sums`; `out` are the strides of the sums from one position to the next.
template <class T>
void add_convolution(const ChannelLanes<T>& images, const Axis& rows, const Axis& columns,
                     const PackedWeight<T>& packed, const T* weight, const LaneSums<T>& sums, const Strides& out) {
  constexpr std::int64_t kDepth = 576;  // products per sum before the next tile: their weights stay in the cache
  const std::int64_t vectors_at_once = std::max<std::int64_t>(kDepth / (rows.taps * columns.taps * kLanes<T>), 1);
  const Strides in = images.strides();
  TileCall<T> call{};
  call.x_steps = {packed.block(), packed.row(), kLanes<T>, packed.vector_size()};
  call.weight_steps = {images.vector_size(), in.row, 1, 0};
  call.y_column = sums.vector_size;
  call.add = true;
  for (std::int64_t v = 0; v < images.vectors(); v += vectors_at_once) {
    for_each_position_tile(images.samples(), rows, columns, in, out, [&](const PositionTile& tile) {
      // The channels under adjacent columns are contiguous: one loop over both.
      call.taps = {std::min(vectors_at_once, images.vectors() - v), tile.rows.count, tile.columns.count * kLanes<T>};
      call.x = weight + v * packed.block() + tile.rows.first * packed.row() + tile.columns.first * packed.column();
      call.weight = images.origin(v) + tile.in + tile.rows.first * in.row + tile.columns.first * in.column;
      call.weight_steps.tile = tile.in_step;
      call.y = sums.data + tile.out;
      call.y_row = tile.out_step;
      run_tile<T>(tile.height, sums.vectors, call);
    });
  }
}

template <class T>
void wide_conv2d(Device device, const ConvShape& s, const T* x, const T* weight, const T* bias, T* y) {
  const auto [kernel, stride, padding] = s.window;
  const std::int64_t plane = s.rows() * s.columns();
  const PackedWeight<T> packed(device, s, weight, PackedFor::forward);
  const ImageLayout in(s.channels, s.height, s.width, padding, padding);
  const Axis rows{s.rows(), kernel, -padding, stride, s.height};
  const Axis columns{s.columns(), kernel, -padding, stride, s.width};
  for_each_image_block(device, s.samples, plane, [&](std::int64_t first, std::int64_t count) {
    const ChannelLanes<T> images(device, in, count, x + first * s.channels * s.height * s.width);
    sum_in_channel_lanes<T>(device, count, s.outputs, plane, bias, y + first * s.outputs * plane,
                            [&](std::int64_t v, const LaneSums<T>& sums) {
                              add_convolution(images, rows, columns, packed, packed.vector(v), sums,
                                              lane_strides<T>(s.rows(), s.columns()));
                            });
  });
}

template <class T>
void wide_conv2d_grad_input(Device device, const ConvShape& s, const T* grad_y, const T* weight, T* grad_x) {
  constexpr std::int64_t kLane = kLanes<T>;
  const std::int64_t stride = s.window.stride;
  const std::int64_t plane = s.height * s.width;
  const std::int64_t out_size = s.outputs * s.rows() * s.columns();
  const PackedWeight<T> packed(device, s, weight, PackedFor::grad_input);
  const Border border = gradient_border(s);
  const ImageLayout in(s.outputs, s.rows(), s.columns(), border.before, border.below, border.right);
  for_each_image_block(device, s.samples, plane, [&](std::int64_t first, std::int64_t count) {
    const ChannelLanes<T> grads(device, in, count, grad_y + first * out_size);
    const auto add = [&](std::int64_t v, const LaneSums<T>& sums) {
      for (std::int64_t h = 0; h < std::min(stride, s.height); ++h) {
        for (std::int64_t w = 0; w < std::min(stride, s.width); ++w) {
          const Phase row(h, s.height, s.window);
          const Phase column(w, s.width, s.window);
          if (row.taps == 0 || column.taps == 0) {
            continue;
          }
          // In the order of the packed weight, tap 0 is the last of the phase.
          const Axis rows{row.positions, row.taps, row.output - row.taps + 1, 1, s.rows()};
          const Axis columns{column.positions, column.taps, column.output - column.taps + 1, 1, s.columns()};
          const std::int64_t last_row = row.tap + (row.taps - 1) * stride;
          const std::int64_t last_column = column.tap + (column.taps - 1) * stride;
          const LaneSums<T> phase_sums{sums.data + (h * s.width + w) * kLane, sums.vectors, sums.vector_size};
          add_convolution(grads, rows, columns, packed, packed.vector(v) + packed.offset(last_row, last_column),
                          phase_sums, {plane * kLane, stride * s.width * kLane, stride * kLane});
        }
      }
    };
    sum_in_channel_lanes<T>(device, count, s.channels, plane, nullptr, grad_x + first * s.channels * plane, add);
  });
}

template <class T>
void wide_conv2d_grad_weight(Device device, const ConvShape& s, const T* grad_y, const T* x, T* grad_weight) {
  constexpr std::int64_t kLane = kLanes<T>;
  constexpr std::int64_t kPositions = 1024;  // of a block: then the channels of one vector fit into the cache
  const std::int64_t plane = s.rows() * s.columns();
  const ImageLayout in(s.channels, s.height, s.width, 0, 0);
  const ImageLayout out(s.outputs, s.rows(), s.columns(), 0, 0);
  const Parts blocks(s.samples, std::max<std::int64_t>(kPositions / plane, 1));
  WeightSums<T> sums(device, s);
  for (std::int64_t block = 0; block < blocks.count; ++block) {
    const std::int64_t first = blocks.begin(block);
    const std::int64_t count = blocks.size(block);
    const Workspace<T> grads(device, groups_of<T>(s.outputs) * count * out.plane() * kLane);  // [V, count, P, Q, lanes]
    parallel_for(device, groups_of<T>(s.outputs), [&](std::int64_t v) {
      channels_to_lanes(out, count, v, grad_y + first * out.size(), grads.data() + v * count * out.plane() * kLane);
    });
    parallel_for(device, groups_of<T>(s.channels), [&](std::int64_t c) {
      const Workspace<T> images(device, count * in.plane() * kLane);  // [count, H, W, lanes]
      channels_to_lanes(in, count, c, x + first * in.size(), images.data());
      sums.add(count, c, images.data(), grads.data());
    });
  }
  sums.write(device, grad_weight);
}

}  // namespace stagecoach::cpu
