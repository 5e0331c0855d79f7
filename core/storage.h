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

/// A block of a device's memory, shared by a tensor and its views, and freed with the last of them. The version counts
/// the writes: autograd uses it to reject a backward pass that needs overwritten values.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  /// Allocates from `memory`, which `device` can access.
  Storage(std::size_t bytes, Device device, std::shared_ptr<Allocator> memory);
  /// Shares the memory of `owner` on another CPU device; see Tensor::seen_from.
  Storage(std::shared_ptr<Storage> owner, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }
  /// Notes that the memory is also used on a stream other than the one that runs its device's operations: it is not
  /// reused for another tensor before `done` is reached. Thread-safe.
  void note_use(const Event& done);

 private:
  std::shared_ptr<Storage> owner_;     // the owner of shared memory, or null
  std::shared_ptr<Allocator> memory_;  // where `data_` was allocated, or null
  void* data_;
  std::size_t bytes_;
  Device device_;
  std::uint64_t version_ = 0;
  std::mutex mutex_;  // guards other_uses_
  std::vector<Event> other_uses_;
};

}  // namespace stagecoach
