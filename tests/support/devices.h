#pragma once
/// @file
/// A logical CPU device of a test's own, so that memory counts and thread counts of other tests do not show in it.

#include <atomic>

#include "core/device.h"

namespace stagecoach::test {

/// cpu:1, cpu:2, …; cpu:0 stays free for tensors that do not care.
inline Device fresh_device() {
  static std::atomic<int> used{0};
  return {DeviceType::cpu, 1 + used++ % (kMaxDevices - 1)};
}

/// Gives a device `count` threads until the end of the scope; idle workers of finished tests would cost time.
class ThreadsFor {
 public:
  ThreadsFor(Device device, int count) : device_(device) { set_threads(device, count); }
  ~ThreadsFor() { set_threads(device_, 1); }
  ThreadsFor(const ThreadsFor&) = delete;
  ThreadsFor& operator=(const ThreadsFor&) = delete;

 private:
  Device device_;
};

}  // namespace stagecoach::test
