#pragma once
/// @file
/// Owning wrappers of CUDA's handles: movable, not copyable, destroyed once.

#include <memory>
#include <type_traits>

#include "core/cuda/check.h"

namespace stagecoach::cuda {

/// Destroys a handle with `destroy`, whose result is ignored: a failure could not be handled.
template <auto destroy>
struct Destroy {
  void operator()(auto* raw) const { static_cast<void>(destroy(raw)); }
};

template <class Raw, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<Raw>, Destroy<destroy>>;

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

inline StreamHandle make_stream() {
  cudaStream_t raw = nullptr;
  // Non-blocking: it does not wait for the legacy default stream, which nothing here uses.
  STAGECOACH_CUDA(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking));
  return StreamHandle(raw);
}

/// Returns a new event, without a time, which would cost more.
inline EventHandle make_event() {
  cudaEvent_t raw = nullptr;
  STAGECOACH_CUDA(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming));
  return EventHandle(raw);
}

}  // namespace stagecoach::cuda
