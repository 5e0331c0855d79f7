#pragma once
/// @file
/// Streams order work on a device; events mark points in it. A CPU device runs every operation immediately, in the
/// calling thread, so its streams are always empty, unless it was made asynchronous (core/asynchronous.h); the same
/// program works on all three kinds of devices.

#include <memory>

#include "core/device.h"

namespace stagecoach {

namespace cuda {
class Mark;
}
struct QueuePoint;

/// A queue of work on one device: work on one stream runs in the order in which it was given.
struct Stream {
  static constexpr int kCompute = 0;  ///< all operations run here
  static constexpr int kCopies = 1;   ///< copy_async runs here, concurrently with them

  Device device;
  int id = kCompute;
  bool operator==(const Stream&) const = default;
};

/// Waits until all work submitted to `stream` so far is done.
void synchronize(const Stream& stream);

/// A point in a stream's work.
class Event {
 public:
  /// Marks the point after the work submitted to `stream` so far.
  void record(const Stream& stream);
  /// Makes later work on `stream` wait for the marked point. Blocks the caller only if `stream` belongs to a
  /// synchronous CPU, or to another kind of device than the event.
  void wait(const Stream& stream) const;
  /// Waits until the marked point is reached. Throws Error if the event was never recorded.
  void synchronize() const;
  bool recorded() const { return recorded_; }
  /// Returns the stream on which the event was last recorded.
  const Stream& stream() const { return stream_; }

 private:
  Stream stream_;
  bool recorded_ = false;
  // A copied event is the same point.
  std::shared_ptr<cuda::Mark> mark_;         // on a GPU
  std::shared_ptr<const QueuePoint> point_;  // on an asynchronous CPU device
};

}  // namespace stagecoach
