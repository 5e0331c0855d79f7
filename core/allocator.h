#pragma once
/// @file
/// The caching allocator of a device. A training step requests the same sizes again and again, and system calls (on a
/// GPU, device-wide waits) would dominate a small model; so freed blocks are kept and reused: the best fit among the
/// free blocks is taken, a larger one is split, and adjacent free blocks are merged.

#include <atomic>
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

/// The source of an allocator's large segments: the C++ heap here, the driver on a GPU.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns `bytes` of memory aligned to Allocator::kAlignment, or nullptr if there is no more.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) = 0;
  /// Returns whether the CPU can access the memory: only then may the allocator fill and poison it.
  virtual bool is_host_memory() const { return true; }
  /// Returns how many bytes could still be acquired, if that is known.
  virtual std::optional<std::size_t> free_bytes() const { return std::nullopt; }
};

struct MemoryStats {
  std::size_t current_bytes = 0;   ///< in use by tensors now, each rounded up to kAlignment
  std::size_t peak_bytes = 0;      ///< the maximum of `current_bytes` since the last reset
  std::size_t reserved_bytes = 0;  ///< obtained from the source: in use or cached
  std::size_t segments = 0;        ///< blocks obtained from the source and not yet returned
};

/// Thread-safe: a tensor handed to another rank is freed there.
class Allocator {
 public:
  struct MetaMemories;

  static constexpr std::size_t kAlignment = 64;                   // a cache line, and a 512-bit vector
  static constexpr std::size_t kSegmentBytes = 2 << 20;           // segments are multiples of this
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 48;  // a larger request is an overflowed size

  /// `owner` is the name of the device in error messages.
  Allocator(std::unique_ptr<MemorySource> source, std::string owner);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  /// Returns `bytes` of uninitialised memory. Throws Error that states how much was requested, how much is free, and
  /// the largest blocks in use.
  void* allocate(std::size_t bytes);
  /// Returns working memory for one kernel call, in the same way. If workspace is modelled, it is not counted.
  void* allocate_workspace(std::size_t bytes);
  /// Frees what `allocate` or `allocate_workspace` returned. The memory stays cached.
  void release(void* memory) noexcept;

  MemoryStats stats() const;
  /// From now on only note_workspace() counts the workspace of kernels: that of a modelled device, instead of what the
  /// kernels take that compute its results.
  void model_workspace() { models_workspace_ = true; }
  /// Counts `bytes` as in use for a moment.
  void note_workspace(std::size_t bytes);
  /// Restarts the measurement of the peak, from the current use.
  void reset_peak();
  /// Returns to the source all segments that are entirely free.
  void empty_cache();

 private:
  struct Block;
  using Blocks = std::map<char*, Block>;                       // by address, so adjacent blocks are adjacent here
  using FreeBlocks = std::set<std::pair<std::size_t, char*>>;  // smallest first

  void* allocate(std::size_t bytes, bool is_counted);
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
  std::atomic<bool> models_workspace_ = false;
};

/// Returns the allocator of `device`. Throws UsageError if the device does not exist.
Allocator& allocator(Device device);
/// Return and replace the memories of the devices `meta` that this thread plans for. Each thread has its own, as it
/// plans by itself, unless it works for another one and uses that one's.
std::shared_ptr<Allocator::MetaMemories> meta_memories();
void use_meta_memories(std::shared_ptr<Allocator::MetaMemories> memories);
/// Returns the allocator for new tensors on `device`: the device's own or, while this thread records work that will be
/// replayed (core/replay.h), the one that belongs to the recording.
std::shared_ptr<Allocator> allocator_for_tensors(Device device);

// The CPU backend's own; those of the CUDA backend are in cuda_backend.h.
namespace cpu {

/// Returns the allocator of a device of type cpu. Throws UsageError unless the device exists.
const std::shared_ptr<Allocator>& allocator(Device device);

}  // namespace cpu
}  // namespace stagecoach
