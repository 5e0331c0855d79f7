#pragma once
/// @file
/// Owning wrappers of CUDA's handles: movable, not copyable, destroyed once.

#include <utility>

#include "core/cuda/check.h"

namespace stagecoach::cuda {

/// Owns a handle and destroys it with `destroy`, whose result is ignored: a failure could not be handled.
template <class Raw, auto destroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(Raw raw) : raw_(raw) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  Raw get() const { return raw_; }

 private:
  void reset() {
    if (raw_ != nullptr) {
      static_cast<void>(destroy(raw_));
    }
  }
  Raw raw_ = nullptr;
};

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
