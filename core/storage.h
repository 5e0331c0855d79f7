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
class CallQueue;

/// A call on an asynchronous CPU device that uses a block of memory (core/stream_order.h).
struct Use {
  CallQueue* queue;
  std::uint64_t ticket;
  const char* name;  ///< of the operation
  bool writes;
  bool is_ordered;  ///< the library lets later calls on other streams wait for it
};

/// Memory from an allocator, returned when neither a storage nor a queued call has a handle to it any more. So the
/// memory of a tensor that is freed while a queued call still uses it is not reused before that call has run.
struct Block {
  Block(std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::shared_ptr<Allocator> allocator;
  void* data;
  std::vector<Use> uses;      // guarded by the mutex of stream_order.cpp
  bool is_abandoned = false;  // never returned: the device has failed while it used the memory
};

/// A block of a device's memory, shared by a tensor and its views, and freed with the last of them. The version counts
/// the writes: autograd uses it to reject a backward pass that needs overwritten values.
class Storage {
 public:
  Storage(std::size_t bytes, Device device);
  /// Allocates from `memory`, which `device` can access.
  Storage(std::size_t bytes, Device device, std::shared_ptr<Allocator> memory);
  /// Shares the memory of `owner` on another device; see Tensor::seen_from.
  Storage(std::shared_ptr<Storage> owner, Device device);
  /// Uses the same memory, with versions of its own, for the arguments of a queued call.
  explicit Storage(std::shared_ptr<Block> block, std::size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return block()->data; }
  /// Throws Error while the memory is dropped.
  const std::shared_ptr<Block>& block() const {
    if (block_ == nullptr) {
      fail_without_memory();
    }
    return block_;
  }
  /// Frees the memory of a storage whose tensors, and the graphs that saved them, will be used again with the same
  /// elements, once take_memory() has brought them back.
  void drop_memory();
  /// Shares the memory of `source`, which has the same size and device. The version stays: the elements are those that
  /// were dropped, so graphs that saved them are still valid.
  void take_memory(const Storage& source);
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint64_t version() const { return version_; }
  void bump_version() { ++version_; }
  /// Notes that the memory is also used on a stream other than the one that runs its device's operations: it is not
  /// reused for another tensor before `done` is reached. Thread-safe.
  void note_use(const Event& done);

 private:
  [[noreturn]] static void fail_without_memory();
  void wait_for_other_uses();

  std::shared_ptr<Storage> owner_;  // the owner of shared memory, or null
  std::shared_ptr<Block> block_;    // null while it is dropped
  std::size_t bytes_;
  Device device_;
  std::uint64_t version_ = 0;
  std::mutex mutex_;  // guards other_uses_
  std::vector<Event> other_uses_;
};

}  // namespace stagecoach
