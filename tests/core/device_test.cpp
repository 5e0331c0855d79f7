// Names of devices, which ones exist, and what is said of those that do not.

#include "core/device.h"

#include <gtest/gtest.h>

#include <string>

#include "core/allocator.h"
#include "core/parallel_for.h"
#include "core/tensor.h"
#include "tests/support/devices.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;

TEST(Device, ParsesItsNames) {
  EXPECT_EQ(parse_device("cpu"), (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(parse_device("cpu:0"), (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(parse_device("cpu:3"), (Device{DeviceType::cpu, 3}));
  EXPECT_EQ(parse_device("cpu:127"), (Device{DeviceType::cpu, 127}));
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(parse_device("cuda:1"), (Device{DeviceType::cuda, 1}));
}

TEST(Device, ParseUndoesToString) {
  for (const Device device : {Device{}, Device{DeviceType::cpu, 12}, Device{DeviceType::cuda, 7}}) {
    EXPECT_EQ(parse_device(to_string(device)), device);
  }
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 1}), "cuda:1");
}

class NoDevice : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Device, NoDevice,
                         ::testing::Values("", ":", ":0", "gpu", "gpu:0", "CPU", "cpu ", " cpu", "cpu:", "cpu:x",
                                           "cpu:-1", "cpu:-0", "cpu:+1", "cpu: 1", "cpu:1 ", "cpu:1x", "cpu:0x1",
                                           "cpu:1.0", "cpu:1:2", "cpu0", "cudacpu", "cpu:128", "cuda:128",
                                           "cpu:99999999999999999999", "cpu:4294967296"));

TEST_P(NoDevice, IsRefusedByName) {
  const std::string quoted = std::string("'") + GetParam() + "'";
  EXPECT_TRUE(fails_with<UsageError>({quoted.c_str(), "cpu", "cuda", "128"}, [] { parse_device(GetParam()); }));
}

TEST(Device, Order) {
  EXPECT_LT((Device{DeviceType::cpu, 1}), (Device{DeviceType::cpu, 2}));
  EXPECT_LT((Device{DeviceType::cpu, 9}), (Device{DeviceType::cuda, 0}));
  EXPECT_NE((Device{DeviceType::cpu, 0}), (Device{DeviceType::cuda, 0}));
}

TEST(Device, OnlySoManyExist) {
  require_device({DeviceType::cpu, 0});
  require_device({DeviceType::cpu, kMaxDevices - 1});
  for (const int index : {-1, kMaxDevices, 1 << 30}) {
    const Device device{DeviceType::cpu, index};
    const std::string name = to_string(device);
    const auto refused = [&](auto call) { return fails_with<UsageError>({name.c_str(), "0 to 127"}, call); };
    EXPECT_TRUE(refused([&] { require_device(device); }));
    EXPECT_TRUE(refused([&] { allocator(device); }));
    EXPECT_TRUE(refused([&] { thread_pool(device); }));
    EXPECT_TRUE(refused([&] { threads(device); }));
    EXPECT_TRUE(refused([&] { set_threads(device, 2); }));
    EXPECT_TRUE(refused([&] { Tensor::zeros({1}, DType::float32, device); }));
  }
}

TEST(Device, EachHasMemoryOfItsOwn) {
  const Device a = test::fresh_device();
  const Device b = test::fresh_device();
  EXPECT_NE(&allocator(a), &allocator(b));
  EXPECT_EQ(&allocator(a), &allocator(a));
  const Tensor x = Tensor::zeros({16}, DType::float32, a);
  EXPECT_EQ(allocator(a).stats().current_bytes, 64U);
  EXPECT_EQ(allocator(b).stats().current_bytes, 0U);
}

TEST(Device, EachHasThreadsOfItsOwn) {
  const Device a = test::fresh_device();
  const Device b = test::fresh_device();
  const test::ThreadsFor held(a, 3);
  EXPECT_EQ(threads(a), 3);
  EXPECT_EQ(threads(b), 1);
}

TEST(Device, OnlySoManySlotsExist) {
  for (const int slot : {-1, kMaxDevices, 1 << 30}) {
    const Device device{DeviceType::cuda, 0, slot};
    const std::string name = to_string(device);
    const auto refused = [&](auto call) {
      return fails_with<UsageError>({name.c_str(), "a slot from 0 to 127"}, call);
    };
    EXPECT_TRUE(refused([&] { require_device(device); }));
    if (test::has_cuda()) {  // a build without CUDA says so first
      EXPECT_TRUE(refused([&] { allocator(device); }));
      EXPECT_TRUE(refused([&] { Tensor::zeros({1}, DType::float32, device); }));
    }
  }
  EXPECT_TRUE(fails_with<UsageError>({"cpu:0/1"}, [] { require_device({DeviceType::cpu, 0, 1}); }));
}

// No machine has so many GPUs. A build without CUDA says that it is one.
TEST(Device, CudaThatIsNotThereIsRefused) {
  const Device cuda{DeviceType::cuda, kMaxDevices - 1};
  const bool can_have_cuda = test::why_no_cuda().find("this build has no CUDA") == std::string::npos;
  const auto refused = [&](auto call) {
    return can_have_cuda ? fails_with<UsageError>({"cuda"}, call)
                         : fails_with<UsageError>({"cuda:127", "no CUDA", "use device `cpu`"}, call);
  };
  EXPECT_TRUE(refused([&] { require_device(cuda); }));
  EXPECT_TRUE(refused([&] { allocator(cuda); }));
  EXPECT_TRUE(refused([&] { Tensor::zeros({1}, DType::float32, cuda); }));
  EXPECT_TRUE(refused([&] { Tensor::zeros({1}).to(cuda); }));
}

}  // namespace
}  // namespace stagecoach
