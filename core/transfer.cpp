#include "core/transfer.h"

#include "core/asynchronous.h"
#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/kernels/queued_copy.h"

namespace stagecoach {

Tensor staging_tensor(const Shape& shape, DType dtype, Device device) {
  return device.type == DeviceType::cpu ? Tensor::empty(shape, dtype)
                                        : Tensor::empty_in(cuda::pinned_allocator(device), shape, dtype);
}

bool shares_memory(Device one, Device other) {
  return one == other || (one.type == other.type && (one.type != DeviceType::cuda || one.index == other.index));
}

namespace {

/// Returns an event after the work submitted to the compute stream of `device` so far.
Event work_of(Device device) {
  Event event;
  event.record({device, Stream::kCompute});
  return event;
}

}  // namespace

Event copy_async(const Tensor& source, Tensor& out) {
  return copy_async(source, out, work_of(source.device()), work_of(out.device()));
}

Event copy_async(const Tensor& source, Tensor& out, const Event& ready, const Event& buffer_free) {
  STAGECOACH_CHECK(source.shape() == out.shape() && source.dtype() == out.dtype(),
                   "copy_async: expected equal shapes and types, got {} to {}", describe(source), describe(out));
  const Device mover = out.device().type == DeviceType::cuda ? out.device() : source.device();
  Event done;
  if (is_asynchronous(out.device())) {
    const bool from_queue = is_asynchronous(source.device());
    const Stream copies{from_queue ? source.device() : out.device(), Stream::kCopies};
    ready.wait(copies);
    buffer_free.wait(copies);
    queue_copy(from_queue ? source : source.clone(), out, copies);
    done.record(copies);
    return done;
  }
  if (mover.type == DeviceType::cpu) {
    out.copy_from(source);
    done.record({mover, Stream::kCopies});
    return done;
  }
  cuda::copy_async(out.raw_mutable_data(), out.device(), source.raw_data(), source.device(), out.bytes(),
                   {ready, buffer_free});
  done.record({mover, Stream::kCopies});
  source.storage()->note_use(done);
  out.storage()->note_use(done);
  return done;
}

}  // namespace stagecoach
