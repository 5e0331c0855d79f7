#include "core/base/wakeup.h"

#include <unistd.h>

#include <cstdint>

#include "core/base/system.h"

namespace stagecoach {

Wakeup::Wakeup() : ends_(system::open_wakeup()) {}

Wakeup::~Wakeup() {
  if (ends_[0] >= 0) {
    ::close(ends_[0]);
  }
  if (ends_[1] >= 0 && ends_[1] != ends_[0]) {
    ::close(ends_[1]);
  }
}

void Wakeup::set() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(ends_[1], &one, sizeof(one)));  // where there is no more room, it is set already
}

void Wakeup::clear() const {
  std::uint64_t count = 0;
  while (::read(ends_[0], &count, sizeof(count)) > 0) {
  }
}

}  // namespace stagecoach
