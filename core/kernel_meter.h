#pragma once
/// @file
/// The meter of a thread: it receives the cost of every kernel that the thread calls, for clocks that compute time
/// instead of measuring it (parallel/comm/clock.h). The kernels run all the same; on the device `meta` only their
/// costs exist. GPUs are not metered.

#include <cstdint>
#include <optional>
#include <utility>

#include "core/device.h"
#include "core/kernels/costs.h"

namespace stagecoach {

class KernelMeter {
 public:
  /// Becomes the meter of the calling thread, which must also destroy it. The previous meter of the thread gets no
  /// costs meanwhile.
  KernelMeter() : previous_(std::exchange(current_, this)) {}
  virtual ~KernelMeter();
  KernelMeter(const KernelMeter&) = delete;
  KernelMeter& operator=(const KernelMeter&) = delete;

  /// Returns the meter of the calling thread; null if it has none, or while a queued call runs.
  static KernelMeter* current() { return current_; }
  /// Is told that the kernel `name` (a string literal) is called on `device`.
  virtual void add(const char* name, Device device, const KernelCost& cost) = 0;
  /// Is told that a tensor is copied to another device.
  virtual void copy(Device from, Device /*to*/, const KernelCost& cost) { add("copy", from, cost); }
  /// Is told that the thread waits for what it has called on `device` so far, or on all devices, as to read a value.
  virtual void wait_for(std::optional<Device> /*device*/) {}
  /// Is told that the thread takes a batch of `bytes` of data, which has been loaded since the previous one was taken;
  /// 0 bytes begin an epoch.
  virtual void take_batch(std::int64_t /*bytes*/) {}

 private:
  static thread_local KernelMeter* current_;
  KernelMeter* previous_;
};

}  // namespace stagecoach
