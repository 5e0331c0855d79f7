// 16-bit floating numbers: what each of them is worth, and how floats are rounded to them.

#include "core/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/kernels/kernels.h"
#include "core/random.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::same_bytes;

static_assert(to_half(1) == Half{0x3c00} && to_float(Half{0xc000}) == -2, "the compiler can convert too");

constexpr std::uint32_t kInfinity = 0x7c00;

/// The 65,536 that there are.
const std::vector<Half>& every_half() {
  static const std::vector<Half> all = [] {
    std::vector<Half> halves(1 << 16);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      halves[i] = static_cast<Half>(i);
    }
    return halves;
  }();
  return all;
}

/// What the bits of a half without a sign are worth, by the definition; for infinity what would follow the largest.
double value_of(std::uint32_t bits) {
  const auto exponent = static_cast<int>(bits >> 10);
  const auto fraction = static_cast<double>(bits & 0x3ff) / 1024;
  return exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
}

/// The half nearest to a number, searched among all of them.
Half nearest(float x) {
  static const std::vector<double> values = [] {
    std::vector<double> all;
    for (std::uint32_t bits = 0; bits <= kInfinity; ++bits) {
      all.push_back(value_of(bits));
    }
    return all;
  }();
  const double size = std::abs(static_cast<double>(x));
  const auto above = static_cast<std::uint32_t>(std::upper_bound(values.begin(), values.end(), size) - values.begin());
  std::uint32_t bits = above - 1;
  if (above <= kInfinity) {
    const double down = size - values[bits];
    const double up = values[above] - size;
    bits += up < down || (up == down && bits % 2 == 1) ? 1 : 0;
  }
  return static_cast<Half>(bits | (std::signbit(x) ? 0x8000U : 0U));
}

Tensor converted(const Tensor& x, DType dtype) {
  Tensor out = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).convert(x, out);
  return out;
}

/// Halves, and the numbers around those on which the rounding turns: halfway between neighbours, and beside that.
std::vector<float> telling_floats() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> all{
      infinity,     std::numeric_limits<float>::max(),       std::numeric_limits<float>::min(), 1e-42F,
      1.00001e-38F, std::numeric_limits<float>::denorm_min()};
  for (std::uint32_t bits = 0; bits < kInfinity; ++bits) {
    const auto halfway = static_cast<float>((value_of(bits) + value_of(bits + 1)) / 2);
    for (const float x : {static_cast<float>(value_of(bits)), halfway}) {
      all.insert(all.end(), {x, std::nextafter(x, 0.0F), std::nextafter(x, infinity)});
    }
  }
  const std::size_t positive = all.size();
  for (std::size_t i = 0; i < positive; ++i) {
    all.push_back(-all[i]);
  }
  const Philox random(7, "floats");
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const auto x = std::bit_cast<float>(random.word(i));
    all.push_back(std::isnan(x) ? 0 : x);
  }
  return all;
}

TEST(Half, IsWorthWhatItsBitsSay) {
  for (std::uint32_t bits = 0; bits < kInfinity; ++bits) {
    ASSERT_EQ(to_float(static_cast<Half>(bits)), value_of(bits)) << bits;
    ASSERT_EQ(to_float(static_cast<Half>(bits | 0x8000)), -value_of(bits)) << bits;
  }
  EXPECT_TRUE(std::signbit(to_float(Half{0x8000})));
  EXPECT_EQ(to_float(Half{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(to_float(Half{0xfc00}), -std::numeric_limits<float>::infinity());
  for (std::uint32_t bits = kInfinity + 1; bits < 0x8000; ++bits) {
    ASSERT_TRUE(std::isnan(to_float(static_cast<Half>(bits)))) << bits;
  }
}

TEST(Half, EveryOneComesBackFromFloat) {
  for (const Device device : test::devices()) {
    const Tensor halves = Tensor::from(every_half(), {1 << 16}, device);
    EXPECT_TRUE(same_bytes(converted(converted(halves, DType::float32), DType::float16), halves)) << to_string(device);
  }
}

TEST(Half, FloatsAreRoundedToTheNearest) {
  const std::vector<float> floats = telling_floats();
  std::vector<Half> expected(floats.size());
  std::transform(floats.begin(), floats.end(), expected.begin(), nearest);
  const Shape shape{static_cast<std::int64_t>(floats.size())};
  for (const Device device : test::devices()) {
    const Tensor halves = converted(Tensor::from(floats, shape, device), DType::float16);
    EXPECT_TRUE(same_bytes(halves, Tensor::from(expected, shape))) << to_string(device);
  }
}

TEST(Half, TheLimitsAreWhereTheyAreSaidToBe) {
  EXPECT_EQ(to_half(65504), Half{0x7bff});
  EXPECT_EQ(to_half(std::nextafter(65520.0F, 0.0F)), Half{0x7bff});
  EXPECT_EQ(to_half(65520), Half{0x7c00});
  EXPECT_EQ(to_half(-65520), Half{0xfc00});
  EXPECT_EQ(to_half(0x1p-25F), Half{0});
  EXPECT_EQ(to_half(std::nextafter(0x1p-25F, 1.0F)), Half{1});
}

TEST(Half, WhatIsNoNumberStaysSoOnEveryDevice) {
  std::vector<float> floats;
  std::vector<Half> expected;
  const auto add = [&](std::uint32_t bits, std::uint16_t half) {
    floats.push_back(std::bit_cast<float>(bits));
    expected.push_back(Half{half});
  };
  add(0x7fc00000, 0x7e00);
  add(0xffc00000, 0xfe00);
  add(0x7fffffff, 0x7fff);
  add(0x7fa46000, 0x7d23);
  add(0x7f800001, 0x7e00);  // what it carries is cut off; infinity would be left
  for (const Device device : test::devices()) {
    const Tensor halves = converted(Tensor::from(floats, {5}, device), DType::float16);
    EXPECT_TRUE(same_bytes(halves, Tensor::from(expected, {5}))) << to_string(device);
  }
}

// Around the widths of vectors, from an odd offset.
TEST(Half, ConversionWritesItsElementsAndNoOther) {
  for (const Device device : test::devices()) {
    for (std::int64_t count = 0; count < 70; ++count) {
      const Tensor x = test::random_tensor({count}, "x", DType::float32, device);
      Tensor halves = Tensor::full({80}, 9, DType::float16, device);
      Tensor inside = halves.alias({count}, 3);
      kernels(device).convert(x, inside);
      Tensor floats = Tensor::full({80}, 9, DType::float32, device);
      inside = floats.alias({count}, 5);
      kernels(device).convert(halves.alias({count}, 3), inside);
      const auto from = x.to_vector<float>();
      std::vector<Half> wanted_halves(80, to_half(9));
      std::vector<float> wanted_floats(80, 9);
      for (std::size_t i = 0; i < from.size(); ++i) {
        wanted_halves[i + 3] = to_half(from[i]);
        wanted_floats[i + 5] = to_float(to_half(from[i]));
      }
      ASSERT_EQ(halves.to_vector<Half>(), wanted_halves) << count;
      ASSERT_EQ(floats.to_vector<float>(), wanted_floats) << count;
    }
  }
}

TEST(Half, OtherTypesAreNotConverted) {
  for (const Device device : test::devices()) {
    const Tensor x = Tensor::zeros({3}, DType::float64, device);
    EXPECT_TRUE(fails_with({"float64[3]", "float32"}, [&] { converted(x, DType::float16); }));
    EXPECT_TRUE(fails_with({"float64[3]", "float16"}, [&] { converted(x, DType::float32); }));
  }
}

// It travels and is stored, and that is all.
TEST(Half, NothingIsComputedWithIt) {
  Tensor x = Tensor::zeros({3}, DType::float16);
  EXPECT_TRUE(fails_with({"add_scaled", "float16"}, [&] { kernels({}).add_scaled(x, 1, x); }));
  EXPECT_TRUE(fails_with({"float16"}, [&] { x.set_requires_grad(true); }));
}

}  // namespace
}  // namespace stagecoach
