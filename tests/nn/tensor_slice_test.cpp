// Slices of tensors: which elements they have, and that all slices together are the whole.

#include "nn/tensor_slice.h"

#include <gtest/gtest.h>

#include "nn/module.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::of;
using test::random_tensor;
using test::same_bytes;

TEST(TensorSlice, OfRowsAndOfColumnsAndOfSections) {
  const Tensor whole = of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {6, 2});
  EXPECT_TRUE(same_bytes(cut(whole, {.whole = {6, 2}, .parts = 3, .index = 1}), of({4, 5, 6, 7}, {2, 2})));
  EXPECT_TRUE(
      same_bytes(cut(whole, {.whole = {6, 2}, .dim = 1, .parts = 2, .index = 1}), of({1, 3, 5, 7, 9, 11}, {6, 1})));
  EXPECT_TRUE(
      same_bytes(cut(whole, {.whole = {6, 2}, .parts = 2, .index = 0, .sections = 3}), of({0, 1, 4, 5, 8, 9}, {3, 2})));
  EXPECT_TRUE(same_bytes(cut(whole, {.whole = {6, 2}}), whole));
}

const TensorSlice kSlices[] = {{.whole = {12}},
                               {.whole = {12}, .parts = 4},
                               {.whole = {12, 5}, .parts = 2, .sections = 3},
                               {.whole = {5, 12}, .dim = 1, .parts = 3},
                               {.whole = {3, 8, 2, 2}, .dim = 1, .parts = 4},
                               {.whole = {2, 12, 3}, .dim = 1, .parts = 2, .sections = 2}};

TEST(TensorSlice, TogetherAreTheWhole) {
  for (TensorSlice slice : kSlices) {
    const Tensor whole = random_tensor(slice.whole, "whole");
    const Tensor joined = Tensor::zeros(slice.whole, DType::float64);
    for (slice.index = 0; slice.index < slice.parts; ++slice.index) {
      const Tensor part = cut(whole, slice);
      EXPECT_EQ(part.shape(), slice.shape());
      const auto all = whole.to_vector<double>();
      const auto values = part.to_vector<double>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], all[static_cast<std::size_t>(slice.index_in_whole(static_cast<std::int64_t>(i)))]);
      }
      paste(part, slice, joined);
    }
    EXPECT_TRUE(same_bytes(joined, whole));
  }
}

TEST(TensorSlice, BeginsAsThePartOfTheWholeParameterWould) {
  const Init init = Init::uniform(0.5);
  for (TensorSlice slice : kSlices) {
    const Tensor whole = init.make(slice.whole, DType::float32, 4, "weight");
    for (slice.index = 0; slice.index < slice.parts; ++slice.index) {
      EXPECT_TRUE(same_bytes(init.make(slice, DType::float32, 4, "weight"), cut(whole, slice)));
    }
  }
}

TEST(TensorSlice, ThatDoesNotFitIsRefused) {
  EXPECT_TRUE(fails_with({"[5, 2]", "2 ranks"}, [] { TensorSlice{.whole = {5, 2}, .parts = 2}.shape(); }));
  EXPECT_TRUE(fails_with({"[4]", "[6]"}, [] { cut(random_tensor({6}, "x"), {.whole = {4}, .parts = 2}); }));
  EXPECT_TRUE(fails_with({"[2]", "[3]"},
                         [] { paste(random_tensor({3}, "x"), {.whole = {4}, .parts = 2}, random_tensor({4}, "y")); }));
}

}  // namespace
}  // namespace stagecoach
