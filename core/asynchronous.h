#pragma once
/// @file
/// Asynchronous CPU devices. An operation on one only appends a call to its stream, as on a GPU, and returns: the
/// caller runs ahead, and several devices work at the same time. Reading a value (`item`, `data`, `to_vector`) waits
/// for the calls that write it, and so does changing one. An error in a call is thrown by the next wait that it
/// concerns. As on a GPU the device then computes nothing more, and later waits throw the same error.
///
/// Each stream is a queue with a thread (core/call_queue.h). One wrapper around the table of kernels enqueues
/// (core/kernels/cpu/tables.h). Memory returns to its allocator when neither a tensor nor a queued call uses it
/// (core/storage.h). Copies between two devices wait for what they need, and let later calls wait for them; a
/// copy_async (core/transfer.h) leaves that to the caller's events, and a call without the event it needs is refused
/// (core/stream_order.h).

#include <vector>

#include "core/call_queue.h"
#include "core/device.h"
#include "core/stream.h"

namespace stagecoach {

/// Makes CPU devices asynchronous until the end of the scope, which waits for all calls. Create and destroy it while no
/// other thread uses the devices; cpu:0, where programs keep data of their own, is better left synchronous.
class AsynchronousDevices {
 public:
  /// Copies between devices run on the stream `copy_stream` of the device that they copy from (of the other one for
  /// copies from a synchronous device): Stream::kCopies, beside its computations, or Stream::kCompute, among them.
  /// Throws Error for a device that is asynchronous already, or whose threads cannot start; then none has changed.
  explicit AsynchronousDevices(const std::vector<Device>& devices, int copy_stream = Stream::kCopies);
  ~AsynchronousDevices();
  AsynchronousDevices(const AsynchronousDevices&) = delete;
  AsynchronousDevices& operator=(const AsynchronousDevices&) = delete;

 private:
  AsynchronousDevices() = default;

  std::vector<Device> devices_;
  int copy_stream_before_ = Stream::kCopies;
};

/// Returns whether operations of this thread on `device` are queued. Within a queued call nothing is.
bool is_asynchronous(Device device);
/// Returns the id of the stream for copies between devices.
int copy_stream();
/// Returns the queue of a stream of an asynchronous device. Throws Error for an id that does not exist.
CallQueue& call_queue(const Stream& stream);
/// Waits for all calls on all devices. Their failures remain to be reported.
void finish_queued_calls();

}  // namespace stagecoach
