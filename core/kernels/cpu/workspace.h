#pragma once
/// @file
/// Working memory of one kernel call. It comes from the device's allocator and counts towards its peak, unless
/// the device's workspace is modelled.

#include <cstdint>

#include "core/allocator.h"

namespace stagecoach::cpu {

template <class T>
class Workspace {
 public:
  Workspace(Device device, std::int64_t count)
      : allocator_(stagecoach::allocator(device)),
        data_(static_cast<T*>(allocator_.allocate_workspace(static_cast<std::size_t>(count) * sizeof(T)))) {}
  ~Workspace() { allocator_.release(data_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  T* data() const { return data_; }

 private:
  Allocator& allocator_;
  T* data_;
};

}  // namespace stagecoach::cpu
