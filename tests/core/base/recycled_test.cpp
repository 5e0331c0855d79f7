// Objects that one thread makes and another one frees.

#include "core/base/recycled.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

/// Each size has a list of its own, so these tests share none.
template <std::size_t kBytes>
struct Object {
  std::array<std::size_t, kBytes / sizeof(std::size_t)> words{};
};
template <std::size_t kBytes>
std::shared_ptr<Object<kBytes>> make() {
  return std::allocate_shared<Object<kBytes>>(Recycled<Object<kBytes>>());
}

TEST(Recycled, TakesWhatAnotherThreadHasFreed) {
  auto first = make<1000>();
  auto second = make<1000>();
  const void* const first_memory = first.get();
  const void* const second_memory = second.get();
  EXPECT_NE(first_memory, second_memory);
  std::jthread([&] { first = nullptr; }).join();
  std::jthread([&] { second = nullptr; }).join();
  const auto third = make<1000>();
  const auto fourth = make<1000>();
  EXPECT_EQ(third.get(), second_memory);
  EXPECT_EQ(fourth.get(), first_memory);
}

TEST(Recycled, GivesBackWhatAThreadHasTakenWhenItEnds) {
  std::vector<std::shared_ptr<Object<1008>>> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(make<1008>());
  }
  const void* const last = all.front().get();
  all.clear();
  std::jthread([] { make<1008>(); }).join();  // takes all three
  const std::vector again{make<1008>(), make<1008>(), make<1008>()};
  EXPECT_TRUE(again[0].get() == last || again[1].get() == last || again[2].get() == last);
}

TEST(Recycled, GivesNoMemoryTwice) {
  constexpr int kThreads = 4;
  const int rounds = test::unless_sanitized(20000, 2000);
  std::mutex mutex;
  std::vector<std::shared_ptr<Object<1016>>> shared;
  const auto work = [&](std::size_t mine) {
    for (int i = 0; i < rounds; ++i) {
      auto object = make<1016>();
      object->words.fill(mine);
      for (const std::size_t word : object->words) {
        ASSERT_EQ(word, mine);
      }
      std::vector<std::shared_ptr<Object<1016>>> to_free;  // made by any thread
      const std::lock_guard lock(mutex);
      shared.push_back(std::move(object));
      if (shared.size() > 8) {
        std::swap(shared, to_free);
      }
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t thread = 1; thread <= kThreads; ++thread) {
    threads.emplace_back(work, thread);
  }
}

}  // namespace
}  // namespace stagecoach
