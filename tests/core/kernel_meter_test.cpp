// The meter of a thread, and the device without memory.

#include "core/kernel_meter.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/asynchronous.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

constexpr Device kMeta{DeviceType::meta, 0};

/// Keeps what it is told.
class Costs final : public KernelMeter {
 public:
  void add(const char* name, Device device, const KernelCost& cost) override {
    names.emplace_back(name);
    devices.push_back(device);
    flops.push_back(cost.flops);
    bytes.push_back(cost.bytes());
  }
  void copy(Device from, Device to, const KernelCost& cost) override {
    add("copy to another", from, cost);
    devices.push_back(to);
  }
  void wait_for(std::optional<Device> device) override { awaited.push_back(device); }
  std::vector<std::string> names;
  std::vector<Device> devices;
  std::vector<std::optional<Device>> awaited;
  std::vector<std::int64_t> flops;
  std::vector<std::int64_t> bytes;
};

/// Runs the forward and backward of a layer and its loss, and returns the input's gradient.
Tensor train(Device device) {
  const auto some = [&](const Shape& shape) { return Tensor::full(shape, 0.5, DType::float32, device); };
  Tensor x = some({4, 3});
  Tensor weight = some({2, 3});
  x.set_requires_grad(true);
  weight.set_requires_grad(true);
  const Tensor labels = Tensor::full({4}, 1, DType::int32, device);
  backward(cross_entropy(relu(linear(x, weight, {})), labels));
  return x.grad();
}

TEST(KernelMeter, IsToldEachCostOfItsThreadOnce) {
  Costs costs;
  const Tensor a = test::random_tensor({3, 5}, "a", DType::float32);
  const Tensor sum = add(a, a);
  std::thread([&] { add(a, a); }).join();
  EXPECT_EQ(costs.flops, (std::vector<std::int64_t>{15}));
  EXPECT_EQ(costs.bytes, (std::vector<std::int64_t>{3 * 15 * 4}));
  EXPECT_EQ(costs.devices, std::vector{Device{}});
  EXPECT_EQ(sum.to_vector<float>()[3], 2 * a.to_vector<float>()[3]);
}

TEST(KernelMeter, TheNewestOfAThreadIsToldUntilItIsGone) {
  Costs older;
  auto newer = std::make_unique<Costs>();
  const Tensor a = Tensor::zeros({2});
  newer.reset();
  const Tensor b = Tensor::zeros({2});
  EXPECT_EQ(older.flops.size(), 1U);
  auto first = std::make_unique<Costs>();
  const Costs last;
  first.reset();  // not the newest
  EXPECT_EQ(KernelMeter::current(), &last);
}

TEST(KernelMeter, IsToldOfQueuedCallsByTheirCaller) {
  const Device device{DeviceType::cpu, 1};
  const AsynchronousDevices asynchronous({device});
  Costs costs;
  const Tensor a = Tensor::full({4}, 1, DType::float32, device);
  EXPECT_EQ(add(a, a).to_vector<float>()[0], 2);
  EXPECT_EQ(costs.devices.front(), device);
  EXPECT_EQ(costs.flops[1], 4);
}

TEST(KernelMeter, IsToldOfCopiesBetweenDevicesAndOfWaits) {
  const Device device{DeviceType::cpu, 1};
  Costs costs;
  const Tensor a = Tensor::zeros({5});
  const Tensor b = a.to(device);
  b.clone();
  EXPECT_EQ(costs.names, (std::vector<std::string>{"fill", "copy to another", "copy"}));
  EXPECT_EQ(costs.devices, (std::vector<Device>{{}, {}, device, device}));
  EXPECT_EQ(b.to_vector<float>()[0], 0);
  synchronize({device});
  finish_queued_calls();
  EXPECT_EQ(costs.awaited, (std::vector<std::optional<Device>>{device, device, {}}));
}

TEST(MetaDevice, CostsWhatTheCpuCosts) {
  Costs here;
  train(Device{});
  Costs there;
  const Tensor grad = train(kMeta);
  EXPECT_EQ(here.flops, there.flops);
  EXPECT_EQ(here.bytes, there.bytes);
  EXPECT_GT(here.flops.size(), 5U);
  EXPECT_EQ(describe(grad), "float32[4, 3] on meta:0");
}

TEST(MetaDevice, TakesNoMemoryAndCountsIt) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 44;
  allocator(kMeta).reset_peak();
  const auto before = allocator(kMeta).stats();
  {
    const Tensor large = Tensor::zeros({kHuge}, DType::float32, kMeta);
    EXPECT_EQ(allocator(kMeta).stats().current_bytes - before.current_bytes, 4 * static_cast<std::size_t>(kHuge));
  }
  EXPECT_EQ(allocator(kMeta).stats().current_bytes, before.current_bytes);
  EXPECT_EQ(allocator(kMeta).stats().peak_bytes - before.current_bytes, 4 * static_cast<std::size_t>(kHuge));
}

TEST(MetaDevice, CountsItsOwnMemory) {
  const Device other{DeviceType::meta, 1};
  const std::size_t before = allocator(other).stats().current_bytes;
  const Tensor here = Tensor::zeros({1000}, DType::float32, kMeta);
  EXPECT_EQ(allocator(other).stats().current_bytes, before);
  const Tensor there = Tensor::zeros({16}, DType::float32, other);
  EXPECT_EQ(allocator(other).stats().current_bytes, before + 64);
}

TEST(MetaDevice, HasNoElementsToRead) {
  const Tensor x = Tensor::zeros({1}, DType::float32, kMeta);
  EXPECT_TRUE(test::fails_with<Error>({"float32[1] on meta:0 has no elements"}, [&] { x.item(); }));
  EXPECT_TRUE(test::fails_with<Error>({"has no elements"}, [&] { Tensor::zeros({1}).copy_from(x); }));
  Tensor y = Tensor::zeros({1}, DType::float32, kMeta);
  y.copy_from(Tensor::zeros({1}));  // costs a copy
}

TEST(ModelledWorkspace, IsCountedInPlaceOfTheKernels) {
  Allocator& memory = allocator({DeviceType::cpu, 7});
  memory.model_workspace();
  memory.reset_peak();
  const std::size_t before = memory.stats().current_bytes;
  memory.release(memory.allocate_workspace(1000));
  EXPECT_EQ(memory.stats().peak_bytes, before);
  memory.note_workspace(1000);
  EXPECT_EQ(memory.stats().peak_bytes, before + 1024);
  EXPECT_EQ(memory.stats().current_bytes, before);
}

}  // namespace
}  // namespace stagecoach
