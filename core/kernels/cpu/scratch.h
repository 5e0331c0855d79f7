#pragma once
/// @file
/// Working memory of one kernel call, from the device's allocator and so counted in its peak.

#include <cstdint>

#include "core/allocator.h"

namespace stagecoach::cpu {

template <class T>
class Scratch {
 public:
  Scratch(Device device, std::int64_t count)
      : allocator_(allocator(device)),
        data_(static_cast<T*>(allocator_.allocate(static_cast<std::size_t>(count) * sizeof(T)))) {}
  ~Scratch() { allocator_.release(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }

 private:
  Allocator& allocator_;
  T* data_;
};

}  // namespace stagecoach::cpu
