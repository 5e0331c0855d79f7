#pragma once
/// @file
/// Asynchronous devices on the modelled clock: the devices to which one controller gives its calls. A call runs at
/// once, in the controller's thread, and only its time is that of an asynchronous device, so nothing depends on real
/// time.
///
/// A stream begins a call when the controller has launched it and the stream's earlier calls have ended. Copies between
/// two devices run on a stream of the device that they leave, after what that device was given before them. They occupy
/// it for bytes / bandwidth, and arrive `latency` later; the other device begins nothing that it is given afterwards
/// before that. A copy from the host runs on the stream of the device that it enters.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/device.h"
#include "parallel/comm/link.h"

namespace stagecoach {

/// Makes devices asynchronous for modelled clocks of the calling thread, which must also destroy it. Times are
/// picoseconds. Only that thread uses it.
class ModelledStreams {
 public:
  /// Known by their indexes, so that meta:1 stands for cpu:1. Copies between two devices take `link` and run on the
  /// stream `copy_stream`; see AsynchronousDevices. If `synchronous`, the controller waits for each call.
  ModelledStreams(const std::vector<Device>& devices, const Link& link, int copy_stream, bool synchronous = false);
  ~ModelledStreams();
  ModelledStreams(const ModelledStreams&) = delete;
  ModelledStreams& operator=(const ModelledStreams&) = delete;

  /// Returns those of the calling thread if they have the device; else null.
  static ModelledStreams* of(Device device);
  /// Returns those of the calling thread, or null.
  static ModelledStreams* current() { return current_; }
  bool is_synchronous() const { return is_synchronous_; }

  /// Adds a call, launched at `now`, which takes `duration`. Returns when it ends.
  std::int64_t launch(const char* name, Device device, std::int64_t now, std::int64_t duration);
  /// Adds a copy, launched at `now`, between two devices, or one and the host: over `link` or, if it is the host, at
  /// `host_bytes_per_second`. Returns when it arrives.
  std::int64_t copy(Device from, Device to, double bytes, std::int64_t now, double host_bytes_per_second);
  /// Returns when the device has computed what it was given so far.
  std::int64_t end(Device device) const;
  /// Returns when all devices have ended all of their work so far.
  std::int64_t end() const;
  /// Returns how long the compute stream of a device has worked so far, in seconds.
  double busy_seconds(Device device) const;

 private:
  struct Streams {
    std::array<std::int64_t, 2> free{};  // when the calls so far on each stream have ended, by its id
    std::int64_t busy = 0;
  };
  bool has(Device device) const { return streams_.contains(device.index); }
  /// Adds a call to a stream. Returns when it ends.
  std::int64_t run(const char* name, int index, int stream, std::int64_t begin, std::int64_t duration);

  static thread_local ModelledStreams* current_;
  std::map<int, Streams> streams_;  // by the device's index
  Link link_;
  int copy_stream_;
  bool is_synchronous_;
};

}  // namespace stagecoach
