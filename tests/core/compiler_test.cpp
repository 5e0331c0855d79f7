// What compilers were found to get wrong, so that a build that has it is noticed. Compiled with the library's flags.

#include <gtest/gtest.h>

#include "core/device.h"

namespace stagecoach::test {

/// A device that is read from memory. Not in an unnamed namespace: a compiler that sees all callers knows the value.
class DeviceInMemory {
 public:
  explicit DeviceInMemory(const Device& device);
  virtual ~DeviceInMemory() = default;

 protected:
  Device device_;
};

class DeviceChosenByCondition final : public DeviceInMemory {
 public:
  explicit DeviceChosenByCondition(const Device& device);
  const Device& chosen() const { return chosen_; }

 private:
  const Device chosen_ = device_.type == DeviceType::meta ? Device{DeviceType::meta, 1} : Device{};
};

DeviceInMemory::DeviceInMemory(const Device& device) : device_(device) {}
DeviceChosenByCondition::DeviceChosenByCondition(const Device& device) : DeviceInMemory(device) {}

// GCC 12 with -O1 -mtune=skylake gives 2 and 0, and 0 and 1 (cmake/Compiler.cmake).
TEST(Compiler, AConditionChoosesAllElements) {
  EXPECT_EQ(DeviceChosenByCondition({DeviceType::meta, 7}).chosen(), (Device{DeviceType::meta, 1}));
  EXPECT_EQ(DeviceChosenByCondition({DeviceType::cpu, 7}).chosen(), (Device{DeviceType::cpu, 0}));
}

}  // namespace stagecoach::test
