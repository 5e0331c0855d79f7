#pragma once
/// @file
/// Paints one image of the generated data.

#include <array>
#include <cstdint>
#include <string_view>

#include "core/random.h"

namespace stagecoach {

inline constexpr std::int64_t kShapeSide = 32;  // rows and columns of an image

enum class ShapeClass { circle, square, triangle, ring, cross, diamond, star, bars, stripes, checkerboard };
/// Names in the order of ShapeClass. Bars are horizontal, stripes vertical.
inline constexpr std::array<std::string_view, 10> kShapeNames = {
    "circle", "square", "triangle", "ring", "cross", "diamond", "star", "bars", "stripes", "checkerboard"};

/// Returns whether the shape covers the point. The shape fills about -1 … 1 in both directions; y points down.
bool shape_covers(ShapeClass shape, double x, double y);

/// Paints `shape` into `pixels` [3, 32, 32]. `random` determines position, size, tilt, the colours of shape and
/// background, the background's gradient, and noise.
void paint_shape(ShapeClass shape, const Philox& random, std::uint8_t* pixels);

}  // namespace stagecoach
