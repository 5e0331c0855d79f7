#pragma once
/// @file
/// The meter of a thread: it receives the cost of every kernel that the thread calls, for clocks that compute time
/// instead of measuring it (parallel/comm/clock.h). The kernels run all the same; on the device `meta` only their
/// costs exist. GPUs are not metered.

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
  /// Is told that a kernel is called on `device`.
  virtual void add(Device device, const KernelCost& cost) = 0;

 private:
  static thread_local KernelMeter* current_;
  KernelMeter* previous_;
};

}  // namespace stagecoach
