#pragma once
/// @file
/// Streams order work on a device; events mark points in it. A CPU device runs every operation at once,
/// in the calling thread, so its streams are always drained; the same program then also fits a GPU.

#include <chrono>
#include <memory>

#include "core/device.h"

namespace stagecoach {

namespace cuda {
class Mark;
}

/// A queue of work on one device: work on one stream runs in the order in which it was given.
struct Stream {
  static constexpr int kCompute = 0;  ///< all operations run here
  static constexpr int kCopies = 1;   ///< copy_async runs here, beside them

  Device device;
  int id = kCompute;
  bool operator==(const Stream&) const = default;
};

/// Returns when all work given to `stream` so far is done.
void synchronize(const Stream& stream);

/// A point in a stream's work.
class Event {
 public:
  /// Marks the point after the work given to `stream` so far.
  void record(const Stream& stream);
  /// The same, for seconds_between. A GPU has more to do for it.
  void record_time(const Stream& stream);
  /// Makes later work on `stream` wait for the marked point. The caller is stopped only if `stream` is a CPU's.
  void wait(const Stream& stream) const;
  /// Returns when the marked point is reached. Throws if the event was never recorded.
  void synchronize() const;
  bool recorded() const { return recorded_; }
  /// Where it was recorded last.
  const Stream& stream() const { return stream_; }

  /// Seconds from `start` to `end` on the device's clock. Throws unless both were recorded by record_time.
  static double seconds_between(const Event& start, const Event& end);

 private:
  void record(const Stream& stream, bool timed);

  Stream stream_;
  bool recorded_ = false;
  bool timed_ = false;
  std::chrono::steady_clock::time_point time_;
  std::shared_ptr<cuda::Mark> mark_;  // on a GPU; a copied event is the same point
};

}  // namespace stagecoach
