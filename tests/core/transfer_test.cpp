// Copies between the CPU and a device, beside the device's work.

#include "core/transfer.h"

#include <gtest/gtest.h>

#include <deque>
#include <numeric>

#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::same_bytes;

/// Copies between cpu:0 and the device.
class Transfer : public ::testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
  const Stream compute_{GetParam(), Stream::kCompute};

  /// A staging tensor with these elements.
  static Tensor staged(const Tensor& values) {
    Tensor tensor = staging_tensor(values.shape(), values.dtype(), device());
    tensor.copy_from(values);
    return tensor;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Transfer, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Transfer, StagingTensorsLieOnTheCpu) {
  for (const DType dtype : {DType::float32, DType::float64, DType::int32, DType::uint8, DType::float16}) {
    Tensor tensor = staging_tensor({3, 5}, dtype, device());
    EXPECT_EQ(tensor.device(), Device{});
    EXPECT_EQ(tensor.shape(), (Shape{3, 5}));
    EXPECT_EQ(tensor.dtype(), dtype);
    tensor.fill(7);
    EXPECT_TRUE(same_bytes(tensor, Tensor::full({3, 5}, 7, dtype)));
  }
  EXPECT_EQ(staging_tensor({0, 5}, DType::uint8, device()).numel(), 0);
}

TEST_P(Transfer, GoesThereAndBack) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{37, 257}, Shape{0, 3}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = random_tensor(shape, "x", DType::float32);
    const Tensor source = staged(x);
    Tensor there = Tensor::full(shape, -1, DType::float32, device());
    copy_async(source, there).wait(compute_);
    Tensor back = staged(Tensor::full(shape, -2));
    copy_async(scale(there, 1), back).synchronize();
    EXPECT_TRUE(same_bytes(back, x));
  }
}

TEST_P(Transfer, MovesPartsOfALargerTensor) {
  const Tensor pixels = Tensor::from(std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {12});
  const Tensor source = staged(pixels);
  Tensor there = Tensor::full({20}, 99, DType::uint8, device());
  Tensor part = there.alias({7}, 5);
  copy_async(source.alias({7}, 3), part).wait(compute_);
  std::vector<std::uint8_t> expected(20, 99);
  for (std::size_t i = 0; i < 7; ++i) {
    expected[5 + i] = static_cast<std::uint8_t>(3 + i);
  }
  EXPECT_EQ(there.to_vector<std::uint8_t>(), expected);
}

TEST_P(Transfer, WithinATensorMayOverlap) {
  std::vector<double> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0);
  Tensor down = Tensor::from(numbers, {1000}, device());
  down.narrow(0, 993).copy_from(down.narrow(7, 993));
  Tensor up = Tensor::from(numbers, {1000}, device());
  up.narrow(7, 993).copy_from(up.narrow(0, 993));
  const std::vector<double> after_down = down.to_vector<double>();
  const std::vector<double> after_up = up.to_vector<double>();
  for (std::size_t i = 0; i < 993; ++i) {
    ASSERT_EQ(after_down[i], numbers[i + 7]);
    ASSERT_EQ(after_up[i + 7], numbers[i]);
  }
  up.copy_from(up);
  EXPECT_EQ(up.to_vector<double>(), after_up);
}

// The header's promise: it begins after the work that the device has so far.
TEST_P(Transfer, ComesAfterTheWorkSoFar) {
  const Tensor ones = Tensor::full({1009}, 1, DType::float64, device());
  Tensor back = staging_tensor({1009}, DType::float64, device());
  for (int round = 0; round < 10; ++round) {
    Tensor x = ones;
    for (int i = 0; i < 10; ++i) {
      x = scale(x, 2);
    }
    copy_async(x, back).synchronize();
    ASSERT_EQ(back.to_vector<double>(), std::vector<double>(1009, 1024.0)) << "round " << round;
  }
}

// And what the device is given after the event waits for the copy, in both directions.
TEST_P(Transfer, IsWaitedFor) {
  Tensor there = Tensor::zeros({1009}, DType::float64, device());
  std::deque<Tensor> sources;
  for (int round = 0; round < 10; ++round) {
    sources.push_back(staged(Tensor::full({1009}, round, DType::float64)));
    copy_async(sources.back(), there).wait(compute_);
    const Tensor doubled = scale(there, 2);
    ASSERT_EQ(doubled.to_vector<double>(), std::vector<double>(1009, 2.0 * round));
  }
}

// Nobody keeps either side: their memory must not go to another tensor while the copy still uses it.
TEST_P(Transfer, KeepsMemoryThatItStillUses) {
  std::vector<Tensor> results;
  for (int round = 0; round < 30; ++round) {
    Tensor there = Tensor::empty({4099}, DType::float64, device());
    copy_async(staged(Tensor::full({4099}, round, DType::float64)), there).wait(compute_);
    results.push_back(scale(there, 1));
    Tensor unused = Tensor::empty({4099}, DType::float64, device());
    copy_async(staged(Tensor::full({4099}, -1, DType::float64)), unused);
  }
  for (int round = 0; round < 30; ++round) {
    const auto values = results[static_cast<std::size_t>(round)].to_vector<double>();
    ASSERT_EQ(values, std::vector<double>(4099, round)) << "round " << round;
  }
}

TEST_P(Transfer, RefusesAnotherShapeOrType) {
  Tensor there = Tensor::zeros({3, 2}, DType::float32, device());
  EXPECT_TRUE(fails_with({"copy_async", "[2, 3]", "[3, 2]"}, [&] { copy_async(Tensor::zeros({2, 3}), there); }));
  EXPECT_TRUE(fails_with({"float64"}, [&] { copy_async(Tensor::zeros({3, 2}, DType::float64), there); }));
}

}  // namespace
}  // namespace stagecoach
