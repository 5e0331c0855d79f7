// The caching allocator over a source whose segments are side by side: what is reused, split, merged and deallocated.

#include "core/allocator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tests/support/address_space.h"
#include "tests/support/arena_memory.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::Arena;
using test::ArenaMemory;
using test::fails_with;

constexpr std::size_t kSegment = Allocator::kSegmentBytes;

/// From now on `new` fails, in this process.
void use_up_new() {
  const rlimit nothing_more{0, 0};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &nothing_more), 0);
  for (std::size_t bytes = std::size_t{1} << 20; bytes >= 16; bytes /= 2) {
    while (::operator new(bytes, std::nothrow) != nullptr) {  // never given back
    }
  }
}

class AllocatorTest : public ::testing::Test {
 protected:
  char* allocate(std::size_t bytes) { return static_cast<char*>(memory_.allocate(bytes)); }

  Arena arena_{8};
  Allocator memory_{std::make_unique<ArenaMemory>(arena_), "test:0"};
};

TEST_F(AllocatorTest, AlignsEveryBlock) {
  std::vector<char*> blocks;
  for (std::size_t bytes = 0; bytes < 300; bytes += 7) {
    blocks.push_back(allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % Allocator::kAlignment, 0U) << bytes << " bytes";
  }
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(std::unique(blocks.begin(), blocks.end()), blocks.end()) << "also blocks of 0 bytes are told apart";
  for (char* block : blocks) {
    memory_.release(block);
  }
}

TEST_F(AllocatorTest, ReusesWhatWasFreed) {
  char* first = allocate(1000);
  memory_.release(first);
  EXPECT_EQ(allocate(1000), first);
  memory_.release(first);
  for (int i = 0; i < 1000; ++i) {
    memory_.release(allocate(64 * static_cast<std::size_t>(1 + i % 50)));
  }
  EXPECT_EQ(arena_.acquired, 1) << "a loop must not ask the source again";
}

TEST_F(AllocatorTest, TakesTheSmallestBlockThatFits) {
  // Free blocks of 320, 128, 256 and 192 bytes, kept apart by used ones.
  std::array<char*, 4> holes{};
  std::array<char*, 4> walls{};
  const std::size_t sizes[] = {320, 128, 256, 192};
  for (std::size_t i = 0; i < 4; ++i) {
    holes[i] = allocate(sizes[i]);
    walls[i] = allocate(64);
  }
  for (char* hole : holes) {
    memory_.release(hole);
  }
  EXPECT_EQ(allocate(192), holes[3]) << "exactly";
  EXPECT_EQ(allocate(192), holes[2]) << "the next larger one, since the exact one is taken";
  EXPECT_EQ(allocate(65), holes[1]) << "65 is rounded up to 128";
  EXPECT_EQ(allocate(64), holes[2] + 192) << "the rest of the one that was split";
  EXPECT_EQ(allocate(300), holes[0]);
  for (char* block : {holes[0], holes[1], holes[2], holes[2] + 192, holes[3], walls[0], walls[1], walls[2], walls[3]}) {
    memory_.release(block);
  }
  EXPECT_EQ(memory_.stats().current_bytes, 0U);
}

TEST_F(AllocatorTest, SplitsALargerBlock) {
  char* whole = allocate(kSegment);
  memory_.release(whole);
  EXPECT_EQ(allocate(100), whole);
  EXPECT_EQ(allocate(64), whole + 128);
  EXPECT_EQ(allocate(kSegment - 192), whole + 192) << "all of the rest";
  EXPECT_EQ(memory_.stats().segments, 1U);
  for (const std::size_t at : {0U, 128U, 192U}) {
    memory_.release(whole + at);
  }
}

// Whatever the order in which three neighbours are freed, they become one block again.
TEST_F(AllocatorTest, MergesFreedNeighbours) {
  std::array<std::size_t, 3> order{0, 1, 2};
  do {
    char* before = allocate(64);
    const std::array<char*, 3> blocks{allocate(128), allocate(64), allocate(192)};
    char* after = allocate(64);
    for (const std::size_t i : order) {
      memory_.release(blocks[i]);
    }
    EXPECT_EQ(allocate(384), blocks[0]) << order[0] << order[1] << order[2];
    for (char* block : {blocks[0], before, after}) {
      memory_.release(block);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  char* all = allocate(kSegment);
  EXPECT_EQ(arena_.acquired, 1) << "in the end the segment is one block again";
  memory_.release(all);
}

TEST_F(AllocatorTest, NeverMergesAcrossSegments) {
  char* first = allocate(kSegment);
  char* second = allocate(kSegment);
  char* third = allocate(kSegment);
  ASSERT_EQ(second, first + kSegment) << "the segments of this test are side by side";
  ASSERT_EQ(third, second + kSegment);
  for (char* segment : {first, third, second}) {  // the last one has free neighbours on both sides
    memory_.release(segment);
  }
  char* large = allocate(2 * kSegment);
  EXPECT_EQ(large, third + kSegment) << "two segments were given out as one block";
  EXPECT_EQ(memory_.stats().segments, 4U);
  memory_.empty_cache();
  EXPECT_EQ(arena_.held(), 2U) << "each segment is given back by itself";
  memory_.release(large);
}

// The same at the border of two segments that in use in part.
TEST_F(AllocatorTest, NeverMergesAPartWithTheNextSegment) {
  char* first = allocate(kSegment - 64);
  char* tail = allocate(64);
  char* second = allocate(128);
  ASSERT_EQ(second, first + kSegment);
  memory_.release(second);
  memory_.release(tail);
  EXPECT_EQ(allocate(128), second);
  memory_.release(second);
  memory_.empty_cache();
  EXPECT_EQ(memory_.stats().segments, 1U);
  memory_.release(first);
}

TEST_F(AllocatorTest, CountsWhatIsUsedAndHeld) {
  EXPECT_EQ(memory_.stats().reserved_bytes, 0U) << "nothing is held before it is needed";
  char* a = allocate(100);
  char* b = allocate(kSegment);
  char* c = allocate(0);
  EXPECT_EQ(memory_.stats().current_bytes, 128 + kSegment + 64);
  EXPECT_EQ(memory_.stats().peak_bytes, 128 + kSegment + 64);
  EXPECT_EQ(memory_.stats().reserved_bytes, 2 * kSegment);
  EXPECT_EQ(memory_.stats().segments, 2U);
  memory_.release(b);
  EXPECT_EQ(memory_.stats().current_bytes, 192U);
  EXPECT_EQ(memory_.stats().peak_bytes, 128 + kSegment + 64) << "a release leaves the peak";
  EXPECT_EQ(memory_.stats().reserved_bytes, 2 * kSegment) << "a release gives nothing back";
  memory_.reset_peak();
  EXPECT_EQ(memory_.stats().peak_bytes, 192U);
  memory_.release(a);
  char* d = allocate(64);
  EXPECT_EQ(memory_.stats().peak_bytes, 192U);
  memory_.release(c);
  memory_.release(d);
  EXPECT_EQ(memory_.stats().current_bytes, 0U);
}

TEST_F(AllocatorTest, EmptyCacheGivesBackWhollyFreeSegments) {
  char* a = allocate(kSegment);
  char* b = allocate(64);
  char* c = allocate(3 * kSegment);
  memory_.release(a);
  memory_.release(c);
  memory_.empty_cache();
  EXPECT_EQ(arena_.held(), 1U) << "the segment of b";
  EXPECT_EQ(memory_.stats().reserved_bytes, kSegment);
  EXPECT_EQ(memory_.stats().segments, 1U);
  EXPECT_EQ(memory_.stats().current_bytes, 64U);
  memory_.release(b);
  memory_.empty_cache();
  memory_.empty_cache();
  EXPECT_EQ(arena_.held(), 0U);
  EXPECT_EQ(memory_.stats().reserved_bytes, 0U);
  memory_.release(allocate(64));
  EXPECT_EQ(arena_.held(), 1U) << "it works on";
}

TEST(AllocatorLife, GivesEverythingBackInTheEnd) {
  Arena arena(4);
  {
    Allocator memory(std::make_unique<ArenaMemory>(arena), "test:0");
    memory.release(memory.allocate(3 * kSegment));
    memory.release(memory.allocate(64));
    EXPECT_GT(arena.held(), 0U);
  }
  EXPECT_EQ(arena.held(), 0U);
}

TEST_F(AllocatorTest, OutOfMemoryNamesWhatWasAskedAndIsHeld) {
  char* a = allocate(5 * kSegment);
  char* b = allocate(100);
  const std::size_t asked = 4 * kSegment;
  EXPECT_TRUE(fails_with({"out of memory", "test:0", std::to_string(asked).c_str(),
                          std::to_string(5 * kSegment + 128).c_str(), std::to_string(6 * kSegment).c_str(), "batch"},
                         [&] { memory_.allocate(asked); }));
  EXPECT_EQ(memory_.stats().current_bytes, 5 * kSegment + 128);
  EXPECT_EQ(memory_.stats().segments, 2U);
  memory_.release(allocate(2 * kSegment));  // what is left can still be had
  memory_.release(a);
  memory_.release(b);
}

TEST_F(AllocatorTest, GivesBackCachedSegmentsBeforeItFails) {
  char* kept = allocate(kSegment);
  for (char* each : {allocate(2 * kSegment), allocate(2 * kSegment), allocate(3 * kSegment)}) {
    memory_.release(each);
  }
  EXPECT_EQ(arena_.held(), 8U);
  char* large = allocate(7 * kSegment);  // fits only where all three were
  EXPECT_EQ(arena_.refused, 1);
  EXPECT_EQ(memory_.stats().segments, 2U);
  EXPECT_EQ(memory_.stats().reserved_bytes, 8 * kSegment);
  memory_.release(large);
  memory_.release(kept);
}

// With its memory given back, the error tells what is really held.
TEST_F(AllocatorTest, OutOfMemoryHoldsNoCache) {
  memory_.release(allocate(3 * kSegment));
  EXPECT_TRUE(fails_with({" 0 in use", " 0 reserved"}, [&] { memory_.allocate(9 * kSegment); }));
  EXPECT_EQ(arena_.held(), 0U);
}

using AllocatorDeathTest = AllocatorTest;

// The program's memory can no longer be trusted: it must not go on.
TEST_F(AllocatorDeathTest, EndsTheProgramWhenABlockIsFreedTwiceOrForeign) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  char* block = allocate(64);
  EXPECT_DEATH(memory_.release(block + 8), "");
  memory_.release(block);
  EXPECT_DEATH(memory_.release(block), "");
}

// What is given back in destructors must be taken without fail, also when `new` has nothing left.
TEST_F(AllocatorDeathTest, TakesMemoryBackWhenThereIsNoMore) {
  if (test::kSanitized) {
    GTEST_SKIP() << "a sanitizer's `new` ends the program when it has nothing left";
  }
  if (!test::holds_limit_on_address_space()) {
    GTEST_SKIP() << "this system does not limit the address space";
  }
  const auto give_back_without_new = [] {
    Arena arena(8);
    Allocator memory(std::make_unique<ArenaMemory>(arena), "test:0");
    std::array<void*, 1000> blocks{};
    for (void*& block : blocks) {
      block = memory.allocate(64);
    }
    use_up_new();
    for (std::size_t i = 0; i < blocks.size(); i += 2) {  // none beside each other, so that all stay apart
      memory.release(blocks[i]);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(give_back_without_new(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stagecoach
