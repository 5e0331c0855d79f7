#include "datasets/resize.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"

namespace stagecoach {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes resize(const Bytes& source, ImageSize from, ImageSize to) {
  Bytes target(static_cast<std::size_t>(3 * to.height * to.width));
  resize_image(source.data(), from, target.data(), to);
  return target;
}

TEST(Resize, PlainColoursStay) {
  for (const int value : {0, 1, 127, 254, 255}) {
    const Bytes plain(3 * 10 * 20, static_cast<std::uint8_t>(value));
    EXPECT_EQ(resize(plain, {10, 20}, {33, 3}), Bytes(3 * 33 * 3, static_cast<std::uint8_t>(value)));
  }
}

TEST(Resize, LargerIsBilinear) {
  // Output pixel i lies at (i + 0.5) / 2 - 0.5 of the input: at -0.25 (edge), 0.25, 0.75, and 1.25 (edge).
  EXPECT_EQ(resize({0, 100, 0, 100, 0, 100}, {1, 2}, {1, 4}), (Bytes{0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100}));
}

TEST(Resize, SmallerCountsEveryPixel) {
  EXPECT_EQ(resize({0, 2, 4, 6, 10, 10, 10, 10, 9, 9, 9, 9}, {2, 2}, {1, 1}), (Bytes{3, 10, 9}));
  Bytes one_dot(3 * 8 * 8, 0);
  one_dot[3 * 8 + 5] = 255;
  EXPECT_GT(resize(one_dot, {8, 8}, {2, 2})[1], 0);
}

TEST(Resize, PlanesStayApart) {
  EXPECT_EQ(resize({10, 20, 30}, {1, 1}, {2, 2}), (Bytes{10, 10, 10, 10, 20, 20, 20, 20, 30, 30, 30, 30}));
}

TEST(Resize, RefusesEmptySizes) {
  Bytes pixels(3);
  EXPECT_THROW(resize_image(pixels.data(), {0, 1}, pixels.data(), {1, 1}), Error);
  EXPECT_THROW(resize_image(pixels.data(), {1, 1}, pixels.data(), {1, 0}), Error);
}

}  // namespace
}  // namespace stagecoach
