#pragma once
/// @file
/// A source of memory for allocators in tests: it counts, it can run out, and its segments lie side by side.

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <vector>

#include "core/allocator.h"

namespace stagecoach::test {

/// Memory for a number of segments in one piece. The lowest ones that are free are given first, so segments touch.
class Arena {
 public:
  explicit Arena(std::size_t segments)
      : memory_(static_cast<char*>(::operator new (kSegment* segments, std::align_val_t{Allocator::kAlignment}))),
        used_by_(segments, nullptr) {}
  ~Arena() { ::operator delete (memory_, std::align_val_t{Allocator::kAlignment}); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* allocate(std::size_t bytes) {
    EXPECT_EQ(bytes % kSegment, 0U) << "segments are multiples of kSegmentBytes";
    const std::size_t count = bytes / kSegment;
    const auto first = std::search_n(used_by_.begin(), used_by_.end(), static_cast<long>(count), nullptr);
    if (first == used_by_.end()) {
      ++refused;
      return nullptr;
    }
    ++acquired;
    char* memory = memory_ + static_cast<std::size_t>(first - used_by_.begin()) * kSegment;
    std::fill_n(first, count, memory);
    return memory;
  }
  void deallocate(void* memory) {
    EXPECT_NE(std::count(used_by_.begin(), used_by_.end(), memory), 0) << "this was never acquired";
    std::replace(used_by_.begin(), used_by_.end(), static_cast<char*>(memory), static_cast<char*>(nullptr));
  }
  /// Segments' worth of memory that is held.
  std::size_t held() const {
    return used_by_.size() - static_cast<std::size_t>(std::count(used_by_.begin(), used_by_.end(), nullptr));
  }

  int acquired = 0;
  int refused = 0;

 private:
  static constexpr std::size_t kSegment = Allocator::kSegmentBytes;
  char* memory_;
  std::vector<char*> used_by_;  // one entry a segment's worth: the start of what holds it
};

class ArenaMemory final : public MemorySource {
 public:
  explicit ArenaMemory(Arena& arena) : arena_(arena) {}
  void* allocate(std::size_t bytes) override { return arena_.allocate(bytes); }
  void deallocate(void* memory) override { arena_.deallocate(memory); }

 private:
  Arena& arena_;
};

}  // namespace stagecoach::test
