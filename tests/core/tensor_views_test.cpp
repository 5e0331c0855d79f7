// Views share storage and its version; they stay inside it and take no memory.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "core/allocator.h"
#include "core/tensor.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::fresh_device;
using test::of;
using test::values_of;
using Values = std::vector<double>;

TEST(TensorViews, ShareTheStorage) {
  Tensor x = of({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor flat = x.reshape({6});
  const Tensor rows = x.narrow(1, 2);
  const Tensor row_of_rows = rows.narrow(1, 1);
  const Tensor cut = x.detach();
  x.mutable_data<double>()[5] = 60;
  EXPECT_EQ(values_of(flat), (Values{1, 2, 3, 4, 5, 60}));
  EXPECT_EQ(values_of(rows), (Values{3, 4, 5, 60}));
  EXPECT_EQ(values_of(row_of_rows), (Values{5, 60}));
  EXPECT_EQ(values_of(cut), (Values{1, 2, 3, 4, 5, 60}));
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  EXPECT_EQ(rows.offset(), 2);
  EXPECT_EQ(row_of_rows.offset(), 4);
  for (const Tensor& view : {flat, rows, row_of_rows, cut}) {
    EXPECT_EQ(view.storage(), x.storage());
    EXPECT_FALSE(view.is_same(x));
  }
}

TEST(TensorViews, AllocateNoDeviceMemory) {
  const Device device = fresh_device();
  Tensor x = Tensor::zeros({4, 6}, DType::float32, device).set_requires_grad(true);
  const Allocator& memory = allocator(device);
  const std::size_t before = memory.stats().current_bytes;
  allocator(device).reset_peak();
  {
    const std::vector<Tensor> views{x.reshape({24}), x.narrow(1, 2), x.detach(), x.reshape({2, -1}), x.to(device)};
    EXPECT_EQ(memory.stats().peak_bytes, before);
  }
  EXPECT_EQ(memory.stats().current_bytes, before);
  EXPECT_EQ(before, 128U) << "96 bytes, rounded up to 64";
}

TEST(TensorViews, KeepTheStorageAlive) {
  const Device device = fresh_device();
  Tensor view;
  {
    const Tensor x = Tensor::full({4}, 3, DType::float32, device);
    view = x.narrow(2, 1);
  }
  EXPECT_EQ(allocator(device).stats().current_bytes, 64U);
  EXPECT_EQ(view.item(), 3);
  view = {};
  EXPECT_EQ(allocator(device).stats().current_bytes, 0U);
}

TEST(TensorViews, ReshapeWorksOutOneExtent) {
  const Tensor x = Tensor::zeros({4, 6});
  EXPECT_EQ(x.reshape({-1}).shape(), (Shape{24}));
  EXPECT_EQ(x.reshape({3, -1}).shape(), (Shape{3, 8}));
  EXPECT_EQ(x.reshape({-1, 2, 2}).shape(), (Shape{6, 2, 2}));
  EXPECT_EQ(x.reshape({2, 3, 4, 1}).shape(), (Shape{2, 3, 4, 1}));
  EXPECT_EQ(Tensor::zeros({}).reshape({-1}).shape(), (Shape{1}));
  EXPECT_EQ(Tensor::zeros({1}).reshape(Shape{}).shape(), Shape{});
  EXPECT_EQ(Tensor::zeros({0, 3}).reshape({-1, 3}).shape(), (Shape{0, 3}));
}

TEST(TensorViews, ReshapeRefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({4, 6});
  EXPECT_TRUE(fails_with({"reshape", "[4, 6]", "[5, 5]"}, [&] { x.reshape({5, 5}); }));
  EXPECT_TRUE(fails_with({"reshape", "[4, 6]", "multiple of 5"}, [&] { x.reshape({5, -1}); }));
  EXPECT_TRUE(fails_with({"reshape", "[4, 6]", "at most one"}, [&] { x.reshape({-1, -1}); }));
  EXPECT_TRUE(fails_with({"reshape", "[4, 6]"}, [&] { x.reshape({0, -1}); }));
  EXPECT_TRUE(fails_with({"0 or more"}, [&] { x.reshape({-2, -12}); }));
  EXPECT_TRUE(fails_with({"reshape", "7", "6"}, [&] { x.reshape({1, 1, 1, 1, 1, 4, 6}); }));
}

TEST(TensorViews, NarrowStaysInside) {
  const Tensor x = of({1, 2, 3}, {3});
  EXPECT_EQ(x.narrow(0, 3).numel(), 3);
  EXPECT_EQ(x.narrow(3, 0).numel(), 0);
  EXPECT_EQ(x.narrow(0, 0).numel(), 0);
  for (const auto& [start, length] : {std::pair{2, 2}, {4, 0}, {-1, 2}, {1, -1}, {0, 4}}) {
    EXPECT_TRUE(fails_with({"narrow", "float64[3]"}, [&, s = start, l = length] { x.narrow(s, l); }))
        << start << ", " << length;
  }
  EXPECT_TRUE(fails_with({"narrow", "[]"}, [] { Tensor::zeros({}).narrow(0, 1); }));
}

TEST(TensorViews, AliasStaysInsideTheStorage) {
  const Tensor x = of({1, 2, 3, 4}, {4});
  EXPECT_EQ(values_of(x.alias({2, 1}, 2)), (Values{3, 4}));
  EXPECT_EQ(values_of(x.narrow(2, 2).alias({4}, 0)), (Values{1, 2, 3, 4}))
      << "the offset counts from the storage's start";
  EXPECT_TRUE(fails_with({"alias", "[4]", "1"}, [&] { x.alias({4}, 1); }));
  EXPECT_TRUE(fails_with({"alias", "-1"}, [&] { x.alias({1}, -1); }));
}

TEST(TensorViews, DetachIsALeafWithoutHistory) {
  const Tensor x = of({1, 2}, {2}).set_requires_grad(true);
  const Tensor view = x.reshape({2, 1});
  EXPECT_FALSE(view.is_leaf());
  EXPECT_TRUE(view.requires_grad());
  EXPECT_TRUE(view.detach().is_leaf());
  EXPECT_FALSE(view.detach().requires_grad());
  EXPECT_FALSE(x.detach().requires_grad());
}

TEST(TensorVersion, RisesWithEachWriteAndNoRead) {
  Tensor x = of({1, 2}, {2});
  std::uint64_t before = x.version();
  const auto rises = [&](auto write) {
    write();
    const bool risen = x.version() > before;
    before = x.version();
    return risen;
  };
  EXPECT_TRUE(rises([&] { x.mutable_data<double>(); }));
  EXPECT_TRUE(rises([&] { x.raw_mutable_data(); }));
  EXPECT_TRUE(rises([&] { x.fill(3); }));
  EXPECT_TRUE(rises([&] { x.copy_from(of({5, 6}, {2})); }));
  EXPECT_FALSE(rises([&] {
    x.data<double>();
    x.raw_data();
    x.to_vector<double>();
    x.clone();
    x.to(Device{});
    x.reshape({2, 1});
    x.narrow(0, 1).item();
    of({0, 0}, {2}).copy_from(x);
  }));
}

TEST(TensorVersion, IsSharedByAllViews) {
  Tensor x = of({1, 2, 3, 4}, {4});
  Tensor view = x.narrow(2, 2).reshape({2, 1});
  const std::uint64_t before = x.version();
  view.fill(0);
  EXPECT_GT(x.version(), before);
  EXPECT_EQ(view.version(), x.version());
  EXPECT_EQ(x.detach().version(), x.version());
  Tensor copy = x.clone();
  const std::uint64_t unchanged = x.version();
  copy.fill(1);
  EXPECT_EQ(x.version(), unchanged) << "a clone has storage of its own";
}

}  // namespace
}  // namespace stagecoach
