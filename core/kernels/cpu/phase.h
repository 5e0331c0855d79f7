#pragma once
/// @file
/// How a strided convolution's input gradient falls apart into convolutions without a stride.

#include <cstdint>

#include "core/kernels/kernels.h"

namespace stagecoach::cpu {

/// One of the stride x stride interleaved grids that the input falls into: positions first + stride * i, each of
/// which meets the kernel's places tap, tap + stride, …
struct Phase {
  Phase(std::int64_t first, std::int64_t extent, const Window& window)
      : positions((extent - first + window.stride - 1) / window.stride),
        tap((first + window.padding) % window.stride),
        taps(tap < window.kernel ? (window.kernel - tap + window.stride - 1) / window.stride : 0),
        output((first + window.padding - tap) / window.stride) {}
  std::int64_t positions;
  std::int64_t tap;
  std::int64_t taps;
  std::int64_t output;  ///< which output position 0 meets at place `tap`; at the next place it meets the one before
};

}  // namespace stagecoach::cpu
