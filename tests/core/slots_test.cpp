// Ranks that share a GPU, each in a slot of its own. The tests exist only where there is a GPU.

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>

#include "core/allocator.h"
#include "core/autograd/backward.h"
#include "core/kernels/kernels.h"
#include "core/ops.h"
#include "core/transfer.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::random_tensor;
using test::same_bytes;

/// The parameter is slot 0 of the GPU.
class Slots : public ::testing::TestWithParam<Device> {
 protected:
  static Device slot(int number) { return {GetParam().type, GetParam().index, number}; }
};
std::vector<Device> gpus() { return test::has_cuda() ? std::vector<Device>{test::kCuda} : std::vector<Device>{}; }
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Slots);
INSTANTIATE_TEST_SUITE_P(Devices, Slots, ::testing::ValuesIn(gpus()), test::device_name);

TEST_P(Slots, HaveMemoryOfTheirOwn) {
  EXPECT_NE(&allocator(slot(0)), &allocator(slot(1)));
  const std::size_t before = allocator(slot(1)).stats().current_bytes;
  const Tensor x = Tensor::zeros({1009}, DType::float32, slot(0));
  EXPECT_EQ(allocator(slot(1)).stats().current_bytes, before);
  const Tensor y = Tensor::zeros({16}, DType::float32, slot(1));
  EXPECT_EQ(allocator(slot(1)).stats().current_bytes, before + 64);
}

TEST_P(Slots, SendTensorsToEachOther) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{37, 257}, Shape{0, 3}}) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = random_tensor(shape, "x");
    const Tensor there = x.to(slot(0)).to(slot(1)).to(slot(2));
    EXPECT_EQ(there.device(), slot(2));
    EXPECT_TRUE(same_bytes(there, x));
    EXPECT_TRUE(same_bytes(there.to(slot(0)), x));
  }
}

// Each slot has streams of its own: a copy between two comes after the work of the one, and before that of the other.
TEST_P(Slots, SendWhatIsStillBeingComputed) {
  Tensor x = Tensor::full({1009}, 1, DType::float64, slot(0));
  for (int round = 0; round < 10; ++round) {
    const Tensor there = scale(scale(x, 4), 2).to(slot(1));
    x = scale(there, 0.25).to(slot(0));
  }
  EXPECT_EQ(x.to_vector<double>(), std::vector<double>(1009, 1024.0));
}

// The sender overwrites, and frees, what it has sent.
TEST_P(Slots, SendBeforeTheSenderGoesOn) {
  for (int round = 0; round < 10; ++round) {
    Tensor there;
    {
      Tensor x = Tensor::full({4099}, round, DType::float64, slot(0));
      there = x.to(slot(1));
      x.fill(-1);
    }
    const Tensor other = Tensor::full({4099}, -2, DType::float64, slot(0));
    EXPECT_EQ(there.to_vector<double>(), std::vector<double>(4099, round));
  }
}

// The other slot's work still reads the memory, which the owner has freed and takes for another tensor.
TEST_P(Slots, UseMemoryOfEachOther) {
  for (int round = 0; round < 10; ++round) {
    Tensor sum;
    const void* address = nullptr;
    {
      Tensor x = Tensor::full({4099}, round, DType::float64, slot(0));
      address = x.raw_data();
      Event ready;
      ready.record({slot(0), Stream::kCompute});
      const Tensor there = std::exchange(x, {}).seen_from(slot(1));
      ready.wait({slot(1), Stream::kCompute});
      EXPECT_EQ(there.raw_data(), address);
      sum = scale(there, 2);
    }
    const Tensor other = Tensor::full({4099}, -2, DType::float64, slot(0));
    EXPECT_EQ(sum.to_vector<double>(), std::vector<double>(4099, 2.0 * round));
  }
}

TEST_P(Slots, CopyToEachOtherBesideTheirWork) {
  Tensor there = Tensor::zeros({1009}, DType::float64, slot(1));
  for (int round = 0; round < 10; ++round) {
    const Tensor x = scale(Tensor::full({1009}, round, DType::float64, slot(0)), 2);
    copy_async(x, there).wait({slot(1), Stream::kCompute});
    ASSERT_EQ(scale(there, 2).to_vector<double>(), std::vector<double>(1009, 4.0 * round));
  }
}

/// Some training steps with a bit of everything; gives the weights.
std::vector<Tensor> train(Device device, const std::string& name) {
  Tensor kernel = test::random_leaf({4, 2, 3, 3}, name + " kernel", DType::float64, device);
  Tensor weight = test::random_leaf({3, 16}, name + " weight", DType::float64, device);
  for (int step = 0; step < 8; ++step) {
    const Tensor x = random_tensor({5, 2, 4, 4}, name + " x " + std::to_string(step), DType::float64, device);
    const Tensor h = max_pool2d(relu(conv2d(x, kernel, {}, {.padding = 1})), {2, 2, 0});
    backward(cross_entropy(linear(flatten(h), weight), test::random_labels(5, 3, device)));
    for (Tensor each : {kernel, weight}) {
      kernels(device).add_scaled(each.grad(), -0.1, each);
      each.zero_grad();
    }
  }
  return {kernel, weight};
}

TEST_P(Slots, WorkAtTheSameTime) {
  std::vector<std::future<std::vector<Tensor>>> ranks;
  for (int number = 0; number < 2; ++number) {
    ranks.push_back(
        std::async(std::launch::async, [number] { return train(slot(number), "rank " + std::to_string(number)); }));
  }
  for (int number = 0; number < 2; ++number) {
    const auto found = ranks[static_cast<std::size_t>(number)].get();
    const auto expected = train({}, "rank " + std::to_string(number));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(test::close(found[i], expected[i], 1e-10, 1e-10)) << "rank " << number;
    }
  }
}

}  // namespace
}  // namespace stagecoach
