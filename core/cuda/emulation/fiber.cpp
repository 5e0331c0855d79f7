#include "core/cuda/emulation/fiber.h"

#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
namespace {
void __sanitizer_start_switch_fiber(void**, const void*, std::size_t) {}
void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*) {}
}  // namespace
#endif

namespace stagecoach::cuda::emulation {

Fiber::Fiber(void (*body)(void*), void* context)
    : body_(body), context_(context), stack_(std::make_unique_for_overwrite<char[]>(kStackBytes)) {
  ::getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext hands on ints only.
  ::makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low);
  __sanitizer_finish_switch_fiber(self->fake_inside_, &self->outside_bottom_, &self->outside_bytes_);
  self->body_(self->context_);
  std::abort();  // the body's last act was to pause, and nobody resumes it
}

void Fiber::resume() {
  __sanitizer_start_switch_fiber(&fake_outside_, stack_.get(), kStackBytes);
  ::swapcontext(&outside_, &inside_);
  __sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr);
}

void Fiber::pause() {
  __sanitizer_start_switch_fiber(&fake_inside_, outside_bottom_, outside_bytes_);
  ::swapcontext(&inside_, &outside_);
  __sanitizer_finish_switch_fiber(fake_inside_, &outside_bottom_, &outside_bytes_);
}

}  // namespace stagecoach::cuda::emulation
