// to, split and cat: gradients across devices, against finite differences and against one device's bytes.

#include <gtest/gtest.h>

#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/finite_differences.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::check_gradients;
using test::fails_with;
using test::fresh_device;
using test::random_labels;
using test::random_leaf;
using test::random_tensor;
using test::same_bytes;
using Inputs = std::vector<Tensor>;

class Moves : public ::testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Devices, Moves, ::testing::ValuesIn(test::devices()), test::device_name);

TEST_P(Moves, HaveTheGradientOfFiniteDifferences) {
  const Device other = fresh_device();
  const Device third = fresh_device();
  check_gradients(GetParam(), [&](const Inputs& in) { return scale(in[0].to(other), 3).to(GetParam()); },
                  {random_tensor({5, 3}, "x")});
  check_gradients(GetParam(),
                  [](const Inputs& in) {
                    return scale(cat({in[0], in[1], in[0]}), -2);
                  },
                  {random_tensor({2, 3}, "a"), random_tensor({4, 3}, "b")});
  const auto over_devices = [&](const Inputs& in) {
    std::vector<Tensor> done;
    for (const Tensor& part : split(in[0], 3)) {
      const Tensor hidden = relu(linear(part, in[1])).to(other);
      done.push_back(linear(hidden, in[2].to(other)).to(third));
    }
    return cat(done).to(GetParam());
  };
  check_gradients(GetParam(), over_devices,
                  {random_tensor({7, 4}, "x"), random_tensor({5, 4}, "w"), random_tensor({2, 5}, "v")});
}

/// A loss whose layers are on `devices`, in micro-batches of `rows`.
Tensor loss_over(const std::vector<Device>& devices, const std::vector<Tensor>& weights, std::int64_t rows) {
  const Tensor images = random_tensor({8, 6}, "images", DType::float32, devices.front());
  std::vector<Tensor> outputs;
  for (Tensor x : split(images, rows)) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      x = relu(linear(x.to(devices[i]), weights[i]));
    }
    outputs.push_back(x);
  }
  return cross_entropy(cat(outputs), random_labels(8, 6, devices.back()));
}

TEST(MovesBetweenDevices, OfOneBackwardOverFourDevicesGiveTheBytesOfOneDevice) {
  const std::vector<Device> devices{fresh_device(), fresh_device(), fresh_device(), fresh_device()};
  for (const std::int64_t rows : {8, 3, 1}) {
    std::vector<Tensor> spread, together;
    for (const Device device : devices) {
      const std::string name = to_string(device);
      spread.push_back(random_leaf({6, 6}, name, DType::float32, device));
      together.push_back(random_leaf({6, 6}, name, DType::float32));
    }
    const Tensor loss = loss_over(devices, spread, rows);
    const Tensor expected = loss_over(std::vector<Device>(4), together, rows);
    EXPECT_TRUE(same_bytes(loss, expected));
    backward(loss);
    backward(expected);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      EXPECT_EQ(spread[i].grad().device(), devices[i]);
      EXPECT_TRUE(same_bytes(spread[i].grad(), together[i].grad())) << "layer " << i << ", rows " << rows;
    }
  }
}

// A weight that layers on two devices use gets the sum of both gradients, on its own device.
TEST(MovesBetweenDevices, AddTheGradientsOfASharedWeight) {
  const Device one = fresh_device();
  const Device two = fresh_device();
  Tensor weight = random_leaf({3, 3}, "w", DType::float64, one);
  const Tensor x = random_tensor({4, 3}, "x", DType::float64, one);
  const Tensor y = linear(linear(x, weight).to(two), weight.to(two));
  backward(y, random_tensor({4, 3}, "g", DType::float64, two));
  Tensor alone = random_leaf({3, 3}, "w");
  backward(linear(linear(random_tensor({4, 3}, "x"), alone), alone), random_tensor({4, 3}, "g"));
  EXPECT_EQ(weight.grad().device(), one);
  EXPECT_TRUE(same_bytes(weight.grad(), alone.grad()));
}

TEST(MovesBetweenDevices, AreNotRecordedWithoutNeed) {
  const Tensor x = random_leaf({2, 2}, "x");
  EXPECT_TRUE(x.to(Device{}).is_same(x));
  {
    const NoGrad no_grad;
    EXPECT_FALSE(x.to(fresh_device()).requires_grad());
    EXPECT_FALSE(cat({x, x}).requires_grad());
  }
  EXPECT_FALSE(random_tensor({2, 2}, "x").to(fresh_device()).requires_grad());
  EXPECT_TRUE(cat({x.detach(), x}).requires_grad());
}

TEST(MovesBetweenDevices, OfPartsThatDoNotFitAreRefused) {
  const Tensor x = random_tensor({2, 3}, "x");
  EXPECT_TRUE(fails_with({"cat: expected at least one part"}, [] { cat({}); }));
  EXPECT_TRUE(fails_with({"cat", "[2, 3]", "[2, 4]"}, [&] { cat({x, random_tensor({2, 4}, "y")}); }));
  EXPECT_TRUE(fails_with({"cat", "float64", "float32"}, [&] { cat({x, random_tensor({2, 3}, "y", DType::float32)}); }));
  EXPECT_TRUE(fails_with({"split", "at least one row"}, [&] { split(x, 0); }));
  EXPECT_EQ(split(x, 5).size(), 1U);
  EXPECT_TRUE(split(random_tensor({0, 3}, "none"), 2).empty());
}

TEST(MovesBetweenDevices, LabelsOnAnotherDeviceAreRefused) {
  const Device logits{DeviceType::cpu, 4};
  const Device labels{DeviceType::cpu, 3};
  const Tensor x = random_tensor({2, 3}, "x", DType::float32, logits);
  EXPECT_TRUE(fails_with({"cross_entropy", "cpu:3", "cpu:4"}, [&] { cross_entropy(x, random_labels(2, 3, labels)); }));
  EXPECT_TRUE(fails_with({"mean_squared_error", "cpu:3", "cpu:4"}, [&] { mean_squared_error(x, x.to(labels)); }));
  EXPECT_TRUE(fails_with({"linear", "cpu:3", "cpu:4"}, [&] { linear(x, x.to(labels)); }));
  EXPECT_TRUE(fails_with({"cat", "cpu:3", "cpu:4"}, [&] { cat({x, x.to(labels)}); }));
}

}  // namespace
}  // namespace stagecoach
