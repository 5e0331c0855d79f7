#pragma once
/// @file
/// The memory of tensors.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device.h"
#include "core/stream.h"

namespace stagecoach {

class Allocator;

/// A block of a device's memory, shared by a tensor and its views, and freed with the last of them.
/// The version counts the writes: autograd uses it to refuse a backward through values that are gone.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  /// The same, from `memory`, which `device` can use.
  Storage(std::size_t bytes, Device device, std::shared_ptr<Allocator> memory);
  /// The memory of `owner`, seen from another CPU device; see Tensor::seen_from.
  Storage(std::shared_ptr<Storage> owner, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }
  /// The memory is now used on a stream besides that of its device's operations: it will not be given to another tensor
  /// before `done` is reached. Any thread may call it.
  void note_use(const Event& done);

 private:
  std::shared_ptr<Storage> owner_;     // of memory that is only seen from here, or null
  std::shared_ptr<Allocator> memory_;  // to give it back to, or null
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::uint64_t version_ = 0;
  std::mutex mutex_;  // guards the next
  std::vector<Event> other_uses_;
};

}  // namespace stagecoach
