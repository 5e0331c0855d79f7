#pragma once
/// @file
/// The caching allocator of a device. A training step asks for the same sizes again and again, and system
/// calls (on a GPU, device-wide waits) would dominate a small model; so freed blocks are kept and reused:
/// best fit among the free blocks, a larger one is split, and neighbours are merged again when freed.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/device.h"

namespace stagecoach {

/// Where an allocator gets its large segments from: the C++ heap here, the driver on a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns `bytes` of memory aligned to Allocator::kAlignment, or nullptr if there is no more.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;
  /// Whether the CPU can touch the memory: only then may the allocator fill and poison it.
  virtual bool is_host_memory() const { return true; }
  /// Bytes that could still be acquired, where that is known.
  virtual std::optional<std::size_t> free_bytes() const { return std::nullopt; }
};

struct MemoryStats {
  std::size_t current_bytes = 0;   ///< in use by tensors now, each rounded up to kAlignment
  std::size_t peak_bytes = 0;      ///< the most that `current_bytes` was since the last reset
  std::size_t reserved_bytes = 0;  ///< held from the source, in use or cached
  std::size_t segments = 0;        ///< calls of the source that are still held
};

/// Any thread may call any function: a tensor handed to another rank is freed there.
class Allocator {
 public:
  static constexpr std::size_t kAlignment = 64;                   // a cache line, and a 512-bit vector
  static constexpr std::size_t kSegmentBytes = 2 << 20;           // segments are multiples of this
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 48;  // more than any machine has: an overflowed size

  /// `owner` names the device in errors.
  Allocator(std::unique_ptr<MemorySource> source, std::string owner);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// `bytes` of uninitialised memory. Throws Error that names what was asked, what is free and the largest blocks held.
  void* allocate(std::size_t bytes);
  /// Gives back what `allocate` returned. The memory stays cached.
  void release(void* memory) noexcept;

  MemoryStats stats() const;
  /// Starts a new measurement of the peak, from the current use.
  void reset_peak();
  /// Gives segments that are wholly free back to the source.
  void empty_cache();

 private:
  struct Block;
  using Blocks = std::map<char*, Block>;                       // by address, so neighbours are neighbours here
  using FreeBlocks = std::set<std::pair<std::size_t, char*>>;  // smallest first

  Blocks::iterator take_best_fit(std::size_t bytes);
  Blocks::iterator add_segment(std::size_t bytes);
  void split(Blocks::iterator block, std::size_t bytes);
  void enter_as_free(Blocks::iterator block) noexcept;
  Blocks::iterator merge_with_next(Blocks::iterator block);
  void give_back_free_segments();
  std::string out_of_memory(std::size_t bytes) const;

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  std::string owner_;
  Blocks blocks_;
  FreeBlocks free_;
  MemoryStats stats_;
};

/// The allocator of `device`. Throws UsageError when the device is not there.
Allocator& allocator(Device device);
/// Where a new tensor on `device` gets its memory from: the device's allocator, or, while this thread records work that
/// will be replayed (core/replay.h), the memory that belongs to the recording.
std::shared_ptr<Allocator> allocator_for_tensors(Device device);

}  // namespace stagecoach
