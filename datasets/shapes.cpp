#include "datasets/shapes.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace stagecoach {
namespace {

// Only + - * / and sqrt are used here. Unlike sin or log, they give the same bits with every C library.

/// Five lines form the star. A point is in the star if it is on the inner side of at least four of them.
bool star_covers(double x, double y) {
  constexpr double kDistance = 0.309016994374947;  // of a line from the centre, for a star of radius 1: cos 72°
  constexpr std::array<std::array<double, 2>, 5> kNormals = {{{0, -1},
                                                              {0.951056516295154, -0.309016994374947},
                                                              {0.587785252292473, 0.809016994374947},
                                                              {-0.587785252292473, 0.809016994374947},
                                                              {-0.951056516295154, -0.309016994374947}}};
  int inside = 0;
  for (const auto& normal : kNormals) {
    inside += normal[0] * x + normal[1] * y <= kDistance ? 1 : 0;
  }
  return inside >= 4;
}

/// Returns the index of the band, of width 2 / bands, that contains `value`, in -1 … 1.
int band(double value, int bands) { return static_cast<int>(std::floor((value + 1) / 2 * bands)); }

struct Colour {
  std::array<double, 3> channels{};  // 0 … 255
};

/// The look of one image, drawn from numbers 0 … 31 of its stream of random numbers.
struct Look {
  explicit Look(const Philox& random);

  double radius, centre_x, centre_y;  // of the shape, in pixels
  double cosine, sine;                // of the shape's tilt
  Colour shape, background;
  std::array<double, 2> slope;  // how much brighter the background is at the right and at the bottom
  double noise;                 // the largest deviation of a pixel
};

Look::Look(const Philox& random) {
  const auto between = [&](std::uint64_t index, double low, double high) {
    return low + (high - low) * random.uniform(index);
  };
  radius = between(0, 7.5, 13);
  const double margin = kShapeSide / 2.0 - radius;
  centre_x = kShapeSide / 2.0 + between(1, -margin, margin);
  centre_y = kShapeSide / 2.0 + between(2, -margin, margin);
  const double t = between(3, -0.13, 0.13);  // the tangent of half the tilt, which is up to 15 degrees
  cosine = (1 - t * t) / (1 + t * t);
  sine = 2 * t / (1 + t * t);
  // Both colours are uniform, so neither gives away the class, but they differ by 64 or more in every channel: each
  // channel of the shape is that of the background plus a random offset, modulo 256.
  for (std::uint64_t c = 0; c < 3; ++c) {
    const double value = between(4 + c, 0, 256);
    const double other = value + between(8 + c, 64, 192);
    background.channels[c] = value;
    shape.channels[c] = other < 256 ? other : other - 256;
  }
  slope = {between(12, -24, 24), between(13, -24, 24)};
  noise = between(14, 4, 24);
}

/// Returns the share of pixel (column, row) that the shape covers, sampled at 3 x 3 points.
double coverage(ShapeClass shape, const Look& look, std::int64_t column, std::int64_t row) {
  int covered = 0;
  for (int i = 0; i < 9; ++i) {
    const double x = static_cast<double>(column) + (i % 3 + 0.5) / 3 - look.centre_x;
    const double y = static_cast<double>(row) + (i / 3 + 0.5) / 3 - look.centre_y;
    covered += shape_covers(shape, (look.cosine * x + look.sine * y) / look.radius,
                            (look.cosine * y - look.sine * x) / look.radius)
                   ? 1
                   : 0;
  }
  return covered / 9.0;
}

}  // namespace

bool shape_covers(ShapeClass shape, double x, double y) {
  const double radius = std::sqrt(x * x + y * y);
  const double square = std::max(std::abs(x), std::abs(y));  // the maximum norm, in which circles are squares
  switch (shape) {
    case ShapeClass::circle:
      return radius <= 0.9;
    case ShapeClass::square:
      return square <= 0.8;
    case ShapeClass::triangle:
      return y <= 0.75 && std::abs(x) <= 0.55 * (y + 0.95);
    case ShapeClass::ring:
      return radius <= 0.95 && radius >= 0.55;
    case ShapeClass::cross:
      return square <= 0.95 && std::min(std::abs(x), std::abs(y)) <= 0.28;
    case ShapeClass::diamond:
      return std::abs(x) + std::abs(y) <= 1;
    case ShapeClass::star:
      return star_covers(x, y);
    case ShapeClass::bars:
      return square < 0.9 && band(y / 0.9, 5) % 2 == 0;
    case ShapeClass::stripes:
      return square < 0.9 && band(x / 0.9, 5) % 2 == 0;
    case ShapeClass::checkerboard:
      return square < 0.9 && (band(x / 0.9, 4) + band(y / 0.9, 4)) % 2 == 0;
  }
  fail("shape_covers: unknown shape");
}

void paint_shape(ShapeClass shape, const Philox& random, std::uint8_t* pixels) {
  const Look look(random);
  for (std::int64_t row = 0; row < kShapeSide; ++row) {
    for (std::int64_t column = 0; column < kShapeSide; ++column) {
      const double share = coverage(shape, look, column, row);
      const double slope = look.slope[0] * (static_cast<double>(column) / kShapeSide - 0.5) +
                           look.slope[1] * (static_cast<double>(row) / kShapeSide - 0.5);
      const auto noise = random.block(static_cast<std::uint64_t>(row * kShapeSide + column), 3);
      for (std::size_t c = 0; c < 3; ++c) {
        const double ground = look.background.channels[c] + slope;
        const double grain = look.noise * (noise[c] * 0x1p-31 - 1);
        const double value = ground + share * (look.shape.channels[c] - ground) + grain;
        pixels[static_cast<std::int64_t>(c) * kShapeSide * kShapeSide + row * kShapeSide + column] =
            static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0) + 0.5);
      }
    }
  }
}

}  // namespace stagecoach
