#include "core/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/uncounted_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#endif

namespace stagecoach {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

thread_local bool memory_is_uncounted = false;

}  // namespace

UncountedMemory::UncountedMemory() : outer_(std::exchange(memory_is_uncounted, true)) {}

UncountedMemory::~UncountedMemory() { memory_is_uncounted = outer_; }

bool UncountedMemory::is_active() { return memory_is_uncounted; }

struct Allocator::Block {
  std::size_t bytes = 0;
  bool free = false;
  bool is_counted = true;
  bool starts_segment = false;    // the block before it in address order is in another segment
  FreeBlocks::node_type entry{};  // kept while the block is in use, so that freeing allocates nothing and cannot fail
};

Allocator::Allocator(std::unique_ptr<MemorySource> source, std::string owner)
    : source_(std::move(source)), owner_(std::move(owner)) {}

Allocator::~Allocator() { empty_cache(); }

void* Allocator::allocate(std::size_t bytes) { return allocate(bytes, !UncountedMemory::is_active()); }

void* Allocator::allocate_workspace(std::size_t bytes) { return allocate(bytes, !models_workspace_); }

void Allocator::note_workspace(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes + round_up(bytes, kAlignment));
}

void* Allocator::allocate(std::size_t bytes, bool is_counted) {
  STAGECOACH_CHECK(bytes <= kMaxBytes,
                   "out of memory on {}: cannot allocate {} bytes, more than any machine has; use a smaller batch "
                   "or model",
                   owner_, bytes);
  const std::size_t size = std::max(round_up(bytes, kAlignment), kAlignment);
  const std::lock_guard lock(mutex_);
  auto block = take_best_fit(size);
  if (block == blocks_.end()) {
    block = add_segment(size);
  }
  try {
    split(block, size);
  } catch (...) {
    enter_as_free(block);
    throw;
  }
  block->second.free = false;
  block->second.is_counted = is_counted;
  stats_.current_bytes += is_counted ? size : 0;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.current_bytes);
  if (source_->is_host_memory()) {
    ASAN_UNPOISON_MEMORY_REGION(block->first, bytes);  // the padding stays poisoned, so an overrun is caught
#ifndef NDEBUG
    std::memset(block->first, 0xff, bytes);  // a float read before it is written is NaN
#endif
  }
  return block->first;
}

void Allocator::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<char*>(memory));
  if (block == blocks_.end() || block->second.free) {
    std::terminate();  // unknown, or freed twice: the program's memory is corrupt
  }
  stats_.current_bytes -= block->second.is_counted ? block->second.bytes : 0;
  if (source_->is_host_memory()) {
    ASAN_POISON_MEMORY_REGION(block->first, block->second.bytes);
  }
  block->second.free = true;
  auto entry = std::move(block->second.entry);
  if (const auto next = std::next(block); next != blocks_.end() && next->second.free && !next->second.starts_segment) {
    free_.erase({next->second.bytes, next->first});
    block = merge_with_next(block);
  }
  if (block != blocks_.begin() && !block->second.starts_segment) {
    if (const auto before = std::prev(block); before->second.free) {
      free_.erase({before->second.bytes, before->first});
      block = merge_with_next(before);
    }
  }
  block->second.entry = std::move(entry);
  enter_as_free(block);
}

void Allocator::enter_as_free(Blocks::iterator block) noexcept {
  block->second.entry.value() = {block->second.bytes, block->first};
  free_.insert(std::move(block->second.entry));
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.current_bytes;
}

void Allocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  give_back_free_segments();
}

Allocator::Blocks::iterator Allocator::take_best_fit(std::size_t bytes) {
  const auto found = free_.lower_bound({bytes, nullptr});
  if (found == free_.end()) {
    return blocks_.end();
  }
  const auto block = blocks_.find(found->second);
  block->second.entry = free_.extract(found);
  return block;
}

Allocator::Blocks::iterator Allocator::add_segment(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kSegmentBytes);
  FreeBlocks one{{size, nullptr}};
  void* memory = source_->allocate(size);
  if (memory == nullptr) {
    give_back_free_segments();  // memory cached in the wrong sizes may be enough
    memory = source_->allocate(size);
  }
  STAGECOACH_CHECK(memory != nullptr, "{}", out_of_memory(bytes));
  if (source_->is_host_memory()) {
    ASAN_POISON_MEMORY_REGION(memory, size);
  }
  Blocks::iterator block;
  try {
    block = blocks_.try_emplace(static_cast<char*>(memory)).first;
  } catch (...) {
    source_->deallocate(memory);
    throw;
  }
  block->second = {.bytes = size, .free = true, .starts_segment = true, .entry = one.extract(one.begin())};
  stats_.reserved_bytes += size;
  ++stats_.segments;
  return block;
}

std::string Allocator::out_of_memory(std::size_t bytes) const {
  std::vector<std::size_t> used;
  for (const auto& [address, block] : blocks_) {
    if (!block.free) {
      used.push_back(block.bytes);
    }
  }
  const auto shown = std::min<std::size_t>(used.size(), 3);
  std::partial_sort(used.begin(), used.begin() + static_cast<std::ptrdiff_t>(shown), used.end(), std::greater<>());
  used.resize(shown);
  const std::optional<std::size_t> left = source_->free_bytes();
  return fmt::format(
      "out of memory on {}: cannot allocate {} bytes ({} free, {} in use, {} reserved; largest blocks in use: {} "
      "bytes); use a smaller batch or model",
      owner_, bytes, left ? fmt::format("{} bytes", *left) : "an unknown number of bytes", stats_.current_bytes,
      stats_.reserved_bytes, used.empty() ? "0" : fmt::format("{}", fmt::join(used, ", ")));
}

void Allocator::split(Blocks::iterator block, std::size_t bytes) {
  const std::size_t rest = block->second.bytes - bytes;
  if (rest == 0) {
    return;
  }
  char* tail = block->first + bytes;
  const auto entry = free_.insert({rest, tail}).first;
  try {
    blocks_.emplace_hint(std::next(block), tail, Block{rest, true, false});
  } catch (...) {
    free_.erase(entry);
    throw;
  }
  block->second.bytes = bytes;
}

Allocator::Blocks::iterator Allocator::merge_with_next(Blocks::iterator block) {
  const auto next = std::next(block);
  block->second.bytes += next->second.bytes;
  blocks_.erase(next);
  return block;
}

void Allocator::give_back_free_segments() {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    // Adjacent free blocks are always merged, so a segment is entirely free if it is one free block.
    const bool whole = block->second.starts_segment && (next == blocks_.end() || next->second.starts_segment);
    if (whole && block->second.free) {
      if (source_->is_host_memory()) {
        ASAN_UNPOISON_MEMORY_REGION(block->first, block->second.bytes);
      }
      free_.erase({block->second.bytes, block->first});
      stats_.reserved_bytes -= block->second.bytes;
      --stats_.segments;
      source_->deallocate(block->first);
      blocks_.erase(block);
    }
    block = next;
  }
}

namespace {

/// Addresses without memory, for tensors that have no elements.
class NoMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    return reinterpret_cast<void*>(next_.fetch_add(round_up(bytes, Allocator::kAlignment)));
  }
  void deallocate(void*) override {}
  bool is_host_memory() const override { return false; }

 private:
  inline static std::atomic<std::uintptr_t> next_ = Allocator::kSegmentBytes;  // no two devices have one in common
};

}  // namespace

/// By their indexes.
struct Allocator::MetaMemories {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Allocator>> all;
};

namespace {

thread_local std::shared_ptr<Allocator::MetaMemories> this_threads_memories;

const std::shared_ptr<Allocator>& meta_allocator(Device device) {
  Allocator::MetaMemories& memories = *meta_memories();
  const std::lock_guard lock(memories.mutex);
  std::shared_ptr<Allocator>& memory = memories.all[device.index];
  if (memory == nullptr) {
    memory = std::make_shared<Allocator>(std::make_unique<NoMemory>(), to_string(device));
  }
  return memory;
}

}  // namespace

std::shared_ptr<Allocator::MetaMemories> meta_memories() {
  if (this_threads_memories == nullptr) {
    this_threads_memories = std::make_shared<Allocator::MetaMemories>();
  }
  return this_threads_memories;
}

void use_meta_memories(std::shared_ptr<Allocator::MetaMemories> memories) {
  this_threads_memories = std::move(memories);
}

Allocator& allocator(Device device) {
  switch (device.type) {
    case DeviceType::cuda:
      return *cuda::allocator(device);
    case DeviceType::meta:
      return *meta_allocator(device);
    case DeviceType::cpu:
      break;
  }
  return *cpu::allocator(device);
}

std::shared_ptr<Allocator> allocator_for_tensors(Device device) {
  switch (device.type) {
    case DeviceType::cuda:
      return cuda::allocator_for_tensors(device);
    case DeviceType::meta:
      return meta_allocator(device);
    case DeviceType::cpu:
      break;
  }
  return cpu::allocator(device);
}

}  // namespace stagecoach
