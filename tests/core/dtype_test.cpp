// Element types, and the choice of code by them.

#include "core/dtype.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "tests/support/errors.h"

namespace stagecoach {
namespace {

TEST(DType, SizesAreThoseOfTheCppTypes) {
  EXPECT_EQ(size_of(dtype_of<float>), sizeof(float));
  EXPECT_EQ(size_of(dtype_of<double>), sizeof(double));
  EXPECT_EQ(size_of(dtype_of<std::int32_t>), sizeof(std::int32_t));
  EXPECT_EQ(size_of(dtype_of<std::uint8_t>), sizeof(std::uint8_t));
  EXPECT_EQ(size_of(dtype_of<Half>), sizeof(Half));
}

TEST(DType, Names) {
  EXPECT_STREQ(name_of(DType::float32), "float32");
  EXPECT_STREQ(name_of(DType::float64), "float64");
  EXPECT_STREQ(name_of(DType::int32), "int32");
  EXPECT_STREQ(name_of(DType::uint8), "uint8");
  EXPECT_STREQ(name_of(DType::float16), "float16");
}

TEST(DType, DispatchCallsWithTheType) {
  const auto size = []<class T>() {
    static_assert(std::is_floating_point_v<T>);
    return sizeof(T);
  };
  EXPECT_EQ(dispatch_floating(DType::float32, "test", size), 4U);
  EXPECT_EQ(dispatch_floating(DType::float64, "test", size), 8U);
}

TEST(DType, DispatchRefusesOtherTypesByName) {
  const auto body = []<class T>() { ADD_FAILURE() << "called for a type of " << sizeof(T) << " bytes"; };
  EXPECT_TRUE(test::fails_with({"sorting", "int32"}, [&] { dispatch_floating(DType::int32, "sorting", body); }));
  EXPECT_TRUE(test::fails_with({"sorting", "uint8"}, [&] { dispatch_floating(DType::uint8, "sorting", body); }));
  EXPECT_TRUE(test::fails_with({"sorting", "float16"}, [&] { dispatch_floating(DType::float16, "sorting", body); }));
}

}  // namespace
}  // namespace stagecoach
