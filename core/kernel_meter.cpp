#include "core/kernel_meter.h"

namespace stagecoach {

thread_local KernelMeter* KernelMeter::current_ = nullptr;

KernelMeter::~KernelMeter() {
  KernelMeter** link = &current_;  // it may not be the newest meter of its thread
  while (*link != nullptr && *link != this) {
    link = &(*link)->previous_;
  }
  if (*link == this) {
    *link = previous_;
  }
}

}  // namespace stagecoach
