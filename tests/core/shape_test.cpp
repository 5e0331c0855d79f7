// Extents: counting, indexing, comparing, and what no shape may be.

#include "core/shape.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(Shape, CountsItsElements) {
  EXPECT_EQ((Shape{2, 3, 4}.numel()), 24);
  EXPECT_EQ((Shape{7}.numel()), 7);
  EXPECT_EQ((Shape{1, 1}.numel()), 1);
  EXPECT_EQ((Shape{5, 0, 3}.numel()), 0);
  EXPECT_EQ(Shape{}.numel(), 1) << "a scalar";
  EXPECT_EQ(Shape{}.dims(), 0);
}

TEST(Shape, IsIndexedFromBothEnds) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.dims(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[2], 4);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_TRUE(fails_with({"dimension 3", "[2, 3, 4]"}, [&] { shape[3]; }));
  EXPECT_TRUE(fails_with({"dimension -4", "[2, 3, 4]"}, [&] { shape[-4]; }));
  EXPECT_TRUE(fails_with({"dimension 0", "[]"}, [&] { Shape{}[0]; }));
}

TEST(Shape, WithChangesOneExtentOfACopy) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.with(1, 9), (Shape{2, 9, 4}));
  EXPECT_EQ(shape.with(-1, 0), (Shape{2, 3, 0}));
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  EXPECT_TRUE(fails_with({"dimension 5"}, [&] { shape.with(5, 1); }));
  EXPECT_TRUE(fails_with({"0 or more", "-2"}, [&] { shape.with(0, -2); }));
}

TEST(Shape, EqualsAShapeOfTheSameExtentsOnly) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE((Shape{2, 3}), (Shape{2}));
  EXPECT_NE(Shape{}, (Shape{1}));
  EXPECT_NE(Shape{}, (Shape{0}));
  EXPECT_EQ(Shape{}, Shape());
}

TEST(Shape, IsARange) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()), (std::vector<std::int64_t>{2, 3, 4}));
  EXPECT_EQ(std::accumulate(shape.begin(), shape.end(), std::int64_t{0}), 9);
  const Shape scalar;
  EXPECT_EQ(scalar.begin(), scalar.end());
}

TEST(Shape, IsMadeFromAnArray) {
  const std::int64_t extents[] = {5, 6, 7};
  EXPECT_EQ(Shape(extents, 2), (Shape{5, 6}));
  EXPECT_EQ(Shape(extents, 0), Shape{});
}

TEST(Shape, Text) {
  EXPECT_EQ(to_string(Shape{64, 3, 32, 32}), "[64, 3, 32, 32]");
  EXPECT_EQ(to_string(Shape{5}), "[5]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Shape, HasAtMostSixDimensions) {
  EXPECT_EQ((Shape{1, 2, 3, 4, 5, 6}.numel()), 720);
  EXPECT_TRUE(fails_with({"7", "6"}, [] { Shape{1, 1, 1, 1, 1, 1, 1}; }));
  const std::int64_t extents[] = {1};
  EXPECT_TRUE(fails_with({"-1"}, [&] { Shape(extents, -1); }));
}

TEST(Shape, RefusesNegativeExtents) {
  EXPECT_TRUE(fails_with({"-1", "0 or more", "[2, -1]"}, [] { Shape{2, -1}; }));
}

TEST(Shape, RefusesMoreElementsThanFitAnyMemory) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  EXPECT_EQ((Shape{kMany, 1 << 18}.numel()), std::int64_t{1} << 58);
  EXPECT_TRUE(fails_with({"at most 2^58 elements"}, [] { Shape{kMany, 1 << 19}; }));
  EXPECT_TRUE(fails_with({"at most 2^58 elements"}, [] { Shape{kMany, kMany, kMany}; }));
  EXPECT_TRUE(fails_with({"at most 2^58 elements"}, [] { Shape{0, kMany, kMany}; })) << "its rows could not be counted";
}

}  // namespace
}  // namespace stagecoach
