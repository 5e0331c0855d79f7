// What compilers were found to get wrong, so that a build that has it is noticed. Compiled with the library's flags.

#include <gtest/gtest.h>

#include <memory>

#include "core/device.h"

namespace stagecoach {
namespace {

class DeviceInMemory {
 public:
  explicit DeviceInMemory(const Device& device) : device_(device) {}
  virtual ~DeviceInMemory() = default;
  virtual const Device& chosen() const { return device_; }

 protected:
  Device device_;
};

class DeviceChosenByCondition final : public DeviceInMemory {
 public:
  explicit DeviceChosenByCondition(const Device& device) : DeviceInMemory(device) {}
  const Device& chosen() const override { return chosen_; }

 private:
  const Device chosen_ = device_.type == DeviceType::meta ? Device{DeviceType::meta, 1} : Device{};
};

std::unique_ptr<DeviceInMemory> choose(const Device& device) {
  return std::make_unique<DeviceChosenByCondition>(device);
}

// GCC 12 with -O1 -mtune=skylake gives 2 and 0, and 0 and 1 (cmake/Compiler.cmake).
TEST(Compiler, AConditionChoosesAllElements) {
  const auto volatile call = choose;  // so that no compiler knows what is called, with which device
  EXPECT_EQ(call({DeviceType::meta, 7})->chosen(), (Device{DeviceType::meta, 1}));
  EXPECT_EQ(call({DeviceType::cpu, 7})->chosen(), (Device{DeviceType::cpu, 0}));
}

}  // namespace
}  // namespace stagecoach
