#include "datasets/shapes.h"

#include <gtest/gtest.h>

#include <vector>

namespace stagecoach {
namespace {

/// The shape as rows of '#' and '.', size x size points over -1 … 1.
std::vector<std::string> drawing(ShapeClass shape, int size) {
  std::vector<std::string> rows(static_cast<std::size_t>(size));
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      const bool covered = shape_covers(shape, (2 * x + 1.0) / size - 1, (2 * y + 1.0) / size - 1);
      rows[static_cast<std::size_t>(y)] += covered ? '#' : '.';
    }
  }
  return rows;
}

TEST(Shapes, LookLikeTheirNames) {
  using Rows = std::vector<std::string>;
  EXPECT_EQ(drawing(ShapeClass::ring, 7),
            (Rows{"..###..", ".#####.", "##...##", "##...##", "##...##", ".#####.", "..###.."}));
  EXPECT_EQ(drawing(ShapeClass::cross, 9), (Rows{"...###...", "...###...", "...###...", "#########", "#########",
                                                 "#########", "...###...", "...###...", "...###..."}));
  EXPECT_EQ(drawing(ShapeClass::bars, 5), (Rows{"#####", ".....", "#####", ".....", "#####"}));
  EXPECT_EQ(drawing(ShapeClass::stripes, 5), (Rows{"#.#.#", "#.#.#", "#.#.#", "#.#.#", "#.#.#"}));
  EXPECT_EQ(drawing(ShapeClass::checkerboard, 4), (Rows{"#.#.", ".#.#", "#.#.", ".#.#"}));
  EXPECT_EQ(drawing(ShapeClass::diamond, 5), (Rows{"..#..", ".###.", "#####", ".###.", "..#.."}));
}

TEST(Shapes, AllStayWithinReachAndDiffer) {
  std::vector<std::vector<std::string>> drawings;
  for (int i = 0; i < 10; ++i) {
    const auto shape = static_cast<ShapeClass>(i);
    drawings.push_back(drawing(shape, 32));
    for (double at = -3; at <= 3; at += 0.25) {
      EXPECT_FALSE(shape_covers(shape, 1.4, at) || shape_covers(shape, at, -1.4)) << kShapeNames[i] << ' ' << at;
    }
  }
  for (std::size_t a = 0; a < 10; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(drawings[a], drawings[b]) << kShapeNames[a] << " and " << kShapeNames[b];
    }
  }
}

TEST(Shapes, TheImageFollowsItsStreamAlone) {
  std::vector<std::uint8_t> a(3 * 32 * 32);
  std::vector<std::uint8_t> b = a;
  paint_shape(ShapeClass::star, Philox(1, "image"), a.data());
  paint_shape(ShapeClass::star, Philox(1, "image"), b.data());
  EXPECT_EQ(a, b);
  paint_shape(ShapeClass::star, Philox(1, "another"), b.data());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace stagecoach
