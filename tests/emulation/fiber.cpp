#include "tests/emulation/fiber.h"

#include <ucontext.h>

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
    : body_(body), context_(context), stack_(std::make_unique_for_overwrite<char[]>(kStackBytes)) {}

// These two end where the address sanitizer does not expect it, so it leaves them alone.
#define STAGECOACH_LEAVES_ITS_STACK __attribute__((noinline, no_sanitize_address))

/// Goes to the new stack. Only this first time by the system's functions: swapcontext asks the kernel for the signal
/// mask at each call, and the address sanitizer then forgets all that it knew about the stack.
STAGECOACH_LEAVES_ITS_STACK void Fiber::start() {
  ucontext_t context;
  ::getcontext(&context);
  context.uc_stack.ss_sp = stack_.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  // makecontext hands on ints only.
  ::makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
  started_ = true;
  ::setcontext(&context);
}

/// Saves where it was called, and goes on at `to`.
STAGECOACH_LEAVES_ITS_STACK void Fiber::leave(Place& from, Place& to) {
  if (__builtin_setjmp(from.data()) == 0) {
    __builtin_longjmp(to.data(), 1);
  }
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low);
  __sanitizer_finish_switch_fiber(self->fake_inside_, &self->outside_bottom_, &self->outside_bytes_);
  self->body_(self->context_);
  std::abort();  // the body's last act was to pause, and nobody resumes it
}

void Fiber::resume() {
  __sanitizer_start_switch_fiber(&fake_outside_, stack_.get(), kStackBytes);
  if (started_) {
    leave(outside_, inside_);
  } else if (__builtin_setjmp(outside_.data()) == 0) {
    start();
  }
  __sanitizer_finish_switch_fiber(fake_outside_, nullptr, nullptr);
}

void Fiber::pause() {
  __sanitizer_start_switch_fiber(&fake_inside_, outside_bottom_, outside_bytes_);
  leave(inside_, outside_);
  __sanitizer_finish_switch_fiber(fake_inside_, &outside_bottom_, &outside_bytes_);
}

}  // namespace stagecoach::cuda::emulation
