// The tensor as a value: making, reading, handles, copies, and rebinding.

#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::fresh_device;
using test::of;
using Values = std::vector<double>;

const DType kTypes[] = {DType::float32, DType::float64, DType::int32, DType::uint8, DType::float16};

Values read(const Tensor& tensor) { return tensor.to_vector<double>(); }

TEST(Tensor, FromKeepsTheValuesRowByRow) {
  const std::vector<std::int32_t> values{1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::from(values, {2, 3});
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.dtype(), DType::int32);
  EXPECT_EQ(x.device(), Device{});
  EXPECT_EQ(x.bytes(), 24U);
  EXPECT_EQ(x.offset(), 0);
  EXPECT_EQ(x.data<std::int32_t>()[4], 5);
  EXPECT_EQ(x.to_vector<std::int32_t>(), values);
  const Device other = fresh_device();
  EXPECT_EQ(Tensor::from(values, {6}, other).device(), other);
  EXPECT_EQ(Tensor::from(values, {6}, other).to_vector<std::int32_t>(), values);
}

TEST(Tensor, FromTakesEveryType) {
  EXPECT_EQ(Tensor::from(std::vector<float>{1.5F}, {}).to_vector<float>(), (std::vector<float>{1.5F}));
  EXPECT_EQ(Tensor::from(std::vector<double>{1.5}, {}).to_vector<double>(), (std::vector<double>{1.5}));
  EXPECT_EQ(Tensor::from(std::vector<std::int32_t>{-7}, {}).to_vector<std::int32_t>(), (std::vector<std::int32_t>{-7}));
  EXPECT_EQ(Tensor::from(std::vector<std::uint8_t>{255}, {}).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{255}));
  EXPECT_EQ(Tensor::from(std::vector<Half>{Half{7}}, {}).to_vector<Half>(), (std::vector<Half>{Half{7}}));
}

TEST(Tensor, FromNeedsAsManyValuesAsTheShapeHas) {
  EXPECT_TRUE(fails_with({"3", "[2, 2]", "4"}, [] { of({1, 2, 3}, {2, 2}); }));
  EXPECT_TRUE(fails_with({"0", "[]", "1"}, [] { of({}, {}); }));
  EXPECT_EQ(of({}, {0, 3}).numel(), 0);
}

TEST(Tensor, FullHoldsTheValueInEveryType) {
  const Device device = fresh_device();
  for (const DType dtype : kTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor x = Tensor::full({5}, 7, dtype, device);
    EXPECT_EQ(x.dtype(), dtype);
    EXPECT_EQ(x.device(), device);
    for (std::int64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(x.narrow(i, 1).item(), 7);
    }
    EXPECT_EQ(Tensor::zeros({1}, dtype).item(), 0);
    EXPECT_EQ(Tensor::full({0}, 7, dtype).numel(), 0);
  }
  EXPECT_EQ(Tensor::full({}, -2.5, DType::float32).item(), -2.5);
  EXPECT_EQ(Tensor::full({}, 0.1, DType::float64).item(), 0.1);
  EXPECT_EQ(Tensor::full({}, -3, DType::int32).item(), -3);
}

TEST(Tensor, FillReplacesEveryElement) {
  Tensor x = of({1, 2, 3, 4}, {4});
  x.narrow(1, 2).fill(9);
  EXPECT_EQ(read(x), (Values{1, 9, 9, 4}));
}

TEST(Tensor, ItemNeedsOneElement) {
  EXPECT_EQ(of({4}, {}).item(), 4);
  EXPECT_EQ(of({4}, {1, 1, 1}).item(), 4);
  EXPECT_TRUE(fails_with({"item", "float64[2]"}, [] { of({1, 2}, {2}).item(); }));
  EXPECT_TRUE(fails_with({"item", "[0]"}, [] { of({}, {0}).item(); }));
}

TEST(Tensor, ReadingAsAnotherTypeIsRefused) {
  Tensor x = of({1}, {1});
  EXPECT_TRUE(fails_with({"float64[1]", " data()", "float32"}, [&] { x.data<float>(); }));
  EXPECT_TRUE(fails_with({"float64[1]", "mutable_data()", "int32"}, [&] { x.mutable_data<std::int32_t>(); }));
  EXPECT_TRUE(fails_with({"float64[1]", "uint8"}, [&] { x.to_vector<std::uint8_t>(); }));
}

TEST(Tensor, UndefinedAnswersNothingButDefined) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(of({1}, {1}).defined());
  EXPECT_EQ(describe(none), "undefined");
  EXPECT_TRUE(fails_with({"undefined"}, [&] { none.shape(); }));
  EXPECT_TRUE(fails_with({"undefined"}, [&] { none.raw_data(); }));
  EXPECT_TRUE(fails_with({"undefined"}, [&] { none.grad(); }));
  EXPECT_TRUE(fails_with({"undefined"}, [&] { none.clone(); }));
  EXPECT_TRUE(fails_with({"undefined"}, [&] { of({1}, {1}).copy_from(none); }));
}

TEST(Tensor, Describe) {
  EXPECT_EQ(describe(Tensor::zeros({64, 10})), "float32[64, 10] on cpu:0");
  EXPECT_EQ(describe(Tensor::zeros({}, DType::uint8, {DeviceType::cpu, 2})), "uint8[] on cpu:2");
}

TEST(Tensor, CopyingTheHandleSharesEverything) {
  Tensor x = of({1, 2}, {2});
  Tensor same = x;
  EXPECT_TRUE(same.is_same(x));
  EXPECT_EQ(same.id(), x.id());
  same.mutable_data<double>()[0] = 5;
  EXPECT_EQ(read(x), (Values{5, 2}));
  same.set_requires_grad(true);
  same.set_grad(of({3, 4}, {2}));
  EXPECT_TRUE(x.requires_grad());
  EXPECT_EQ(read(x.grad()), (Values{3, 4}));
  EXPECT_FALSE(x.is_same(of({5, 2}, {2})));
}

TEST(Tensor, KnowsWhetherItsElementsAreSeenElsewhere) {
  Tensor x = of({1, 2}, {2});
  EXPECT_TRUE(x.is_donatable());
  {
    const Tensor same = x;
    EXPECT_FALSE(x.is_donatable());
  }
  {
    const Tensor view = x.narrow(0, 1);
    EXPECT_FALSE(x.is_donatable());
    EXPECT_FALSE(view.is_donatable());
  }
  EXPECT_TRUE(x.is_donatable());
}

TEST(Tensor, GradientMustFit) {
  Tensor x = of({1, 2}, {2});
  EXPECT_TRUE(fails_with({"[3]", "[2]"}, [&] { x.set_grad(of({1, 2, 3}, {3})); }));
  EXPECT_TRUE(fails_with({"float32", "float64"}, [&] { x.set_grad(Tensor::zeros({2})); }));
  EXPECT_TRUE(fails_with({"cpu:1", "cpu:0"}, [&] {
    x.set_grad(Tensor::zeros({2}, DType::float64, {DeviceType::cpu, 1}));
  }));
  EXPECT_FALSE(x.grad().defined());
}

TEST(TensorCopies, CloneIsIndependent) {
  Tensor x = of({1, 2, 3}, {3}).set_requires_grad(true);
  const Tensor copy = x.narrow(1, 2).clone();
  x.fill(0);
  EXPECT_EQ(read(copy), (Values{2, 3}));
  EXPECT_TRUE(copy.is_leaf());
  EXPECT_FALSE(copy.requires_grad());
  EXPECT_EQ(copy.storage()->bytes(), 16U) << "a clone of a view holds the view only";
}

TEST(TensorCopies, ToAnotherDeviceCopies) {
  const Device device = fresh_device();
  Tensor x = of({1, 2, 3}, {3});
  const Tensor moved = x.narrow(1, 2).to(device);
  EXPECT_EQ(moved.device(), device);
  x.fill(0);
  EXPECT_EQ(read(moved), (Values{2, 3}));
  EXPECT_TRUE(x.to(x.device()).is_same(x)) << "nothing to do";
}

TEST(TensorCopies, CopyFromTakesEveryElement) {
  Tensor x = Tensor::zeros({2, 2}, DType::float64);
  x.copy_from(of({1, 2, 3, 4}, {2, 2}));
  EXPECT_EQ(read(x), (Values{1, 2, 3, 4}));
  x.narrow(1, 1).copy_from(of({7, 8}, {1, 2}));
  EXPECT_EQ(read(x), (Values{1, 2, 7, 8}));
  x.copy_from(Tensor::full({2, 2}, 5, DType::float64, fresh_device()));
  EXPECT_EQ(read(x), (Values{5, 5, 5, 5}));
}

TEST(TensorCopies, CopyFromRefusesWhatDiffers) {
  Tensor x = Tensor::zeros({2, 2});
  EXPECT_TRUE(fails_with({"copy", "[4]", "[2, 2]"}, [&] { x.copy_from(Tensor::zeros({4})); }));
  EXPECT_TRUE(fails_with({"copy", "float64", "float32"}, [&] { x.copy_from(Tensor::zeros({2, 2}, DType::float64)); }));
}

TEST(TensorRebind, NamesTheStorageOfTheSource) {
  Tensor x = of({1, 2}, {2}).set_requires_grad(true);
  const Tensor same = x;
  const Tensor view = x.detach();
  x.set_grad(of({3, 4}, {2}));
  Tensor source = of({9, 5, 6}, {3});
  x.rebind(source.narrow(1, 2));
  EXPECT_EQ(read(same), (Values{5, 6}));
  EXPECT_EQ(x.storage(), source.storage());
  EXPECT_EQ(read(view), (Values{1, 2})) << "views keep the old storage";
  EXPECT_EQ(read(x.grad()), (Values{3, 4}));
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(x.is_same(same));
}

TEST(TensorRebind, RefusesWhatDiffers) {
  Tensor x = Tensor::zeros({2});
  EXPECT_TRUE(fails_with({"rebind", "[2]", "[3]"}, [&] { x.rebind(Tensor::zeros({3})); }));
  EXPECT_TRUE(fails_with({"rebind", "float64"}, [&] { x.rebind(Tensor::zeros({2}, DType::float64)); }));
  EXPECT_TRUE(fails_with({"rebind", "cpu:4"}, [&] {
    x.rebind(Tensor::zeros({2}, DType::float32, {DeviceType::cpu, 4}));
  }));
}

#ifndef NDEBUG
TEST(Tensor, EmptyIsNotANumberInDebugBuilds) { EXPECT_TRUE(std::isnan(Tensor::empty({1}).item())); }
#endif

}  // namespace
}  // namespace stagecoach
