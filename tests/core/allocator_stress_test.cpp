// The allocator under random use, by one thread and by several, against a simple model.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/allocator.h"
#include "core/random.h"
#include "tests/support/arena_memory.h"

namespace stagecoach {
namespace {

using test::Arena;
using test::ArenaMemory;

/// Blocks that are in use, each filled with a byte of its own.
class Pattern {
 public:
  Pattern(Allocator& memory, std::uint64_t key) : memory_(memory), random_(key) {}

  /// Allocates or releases, at random; at most 60 blocks live.
  void step() {
    const std::size_t choice = random_.below(next_++, 100);
    if (blocks_.empty() || (choice < 52 && blocks_.size() < 60)) {
      // Mostly small ones, sometimes one that needs a segment of its own.
      const std::uint32_t most = choice == 0 ? 3 << 20 : choice < 10 ? 1 << 17 : 1 << 11;
      add(random_.below(next_++, most));
    } else {
      drop(random_.below(next_++, static_cast<std::uint32_t>(blocks_.size())));
    }
  }
  void drop_all() {
    while (!blocks_.empty()) {
      drop(blocks_.size() - 1);
    }
  }
  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }

 private:
  struct Block {
    char* data;
    std::size_t bytes;
    char filler;
  };
  static std::size_t rounded(std::size_t bytes) { return std::max<std::size_t>((bytes + 63) / 64 * 64, 64); }

  void add(std::size_t bytes) {
    Block block{static_cast<char*>(memory_.allocate(bytes)), bytes, static_cast<char>(next_)};
    std::memset(block.data, block.filler, bytes);
    blocks_.push_back(block);
    used_ += rounded(bytes);
    peak_ = std::max(peak_, used_);
  }
  void drop(std::size_t which) {
    const Block block = blocks_[which];
    EXPECT_EQ(std::count(block.data, block.data + block.bytes, block.filler), static_cast<long>(block.bytes))
        << "another block wrote into this one";
    memory_.release(block.data);
    used_ -= rounded(block.bytes);
    blocks_[which] = blocks_.back();
    blocks_.pop_back();
  }

  Allocator& memory_;
  Philox random_;
  std::uint64_t next_ = 0;
  std::vector<Block> blocks_;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

TEST(AllocatorStress, RandomUseKeepsItsCounts) {
  Arena arena(64);
  Allocator memory(std::make_unique<ArenaMemory>(arena), "test:0");
  Pattern pattern(memory, 1);
  for (int step = 0; step < 5000; ++step) {
    pattern.step();
    if (step % 500 == 499) {
      memory.empty_cache();
    }
    const MemoryStats stats = memory.stats();
    ASSERT_EQ(stats.current_bytes, pattern.used()) << "step " << step;
    ASSERT_EQ(stats.peak_bytes, pattern.peak()) << "step " << step;
    ASSERT_EQ(stats.reserved_bytes, arena.held() * Allocator::kSegmentBytes) << "step " << step;
    ASSERT_GE(stats.reserved_bytes, stats.current_bytes) << "step " << step;
  }
  pattern.drop_all();
  EXPECT_EQ(memory.stats().current_bytes, 0U);
  memory.empty_cache();
  EXPECT_EQ(arena.held(), 0U) << "a segment is not wholly free, although every block of it is";
  EXPECT_EQ(memory.stats().segments, 0U);
}

TEST(AllocatorStress, SeveralThreadsAtOnce) {
  Arena arena(64);
  Allocator memory(std::make_unique<ArenaMemory>(arena), "test:0");
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t key = 1; key <= 4; ++key) {
      threads.emplace_back([&memory, key] {
        Pattern pattern(memory, key);
        for (int step = 0; step < 800; ++step) {
          pattern.step();
          if (step % 200 == 199) {
            memory.empty_cache();
            memory.reset_peak();
          }
        }
        pattern.drop_all();
      });
    }
  }
  EXPECT_EQ(memory.stats().current_bytes, 0U);
  memory.empty_cache();
  EXPECT_EQ(arena.held(), 0U);
}

// A tensor handed to another rank is freed there.
TEST(AllocatorStress, OneThreadAllocatesAndAnotherReleases) {
  Arena arena(4);
  Allocator memory(std::make_unique<ArenaMemory>(arena), "test:0");
  std::mutex mutex;
  std::vector<char*> handed_over;
  constexpr int kBlocks = 3000;
  std::jthread giver([&] {
    for (int i = 0; i < kBlocks; ++i) {
      char* block = static_cast<char*>(memory.allocate(64 + static_cast<std::size_t>(i) % 500));
      std::memset(block, i, 64);
      const std::lock_guard lock(mutex);
      handed_over.push_back(block);
    }
  });
  for (int taken = 0; taken < kBlocks;) {
    std::vector<char*> mine;
    {
      const std::lock_guard lock(mutex);
      mine.swap(handed_over);
    }
    for (char* block : mine) {
      EXPECT_EQ(block[0], block[63]);
      memory.release(block);
      ++taken;
    }
    std::this_thread::yield();
  }
  giver.join();
  EXPECT_EQ(memory.stats().current_bytes, 0U);
}

}  // namespace
}  // namespace stagecoach
