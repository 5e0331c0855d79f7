#include "datasets/budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/errors.h"

namespace stagecoach {
namespace {

TEST(Budget, ThreadsNeverHoldMoreThanThereIs) {
  constexpr std::int64_t kTotal = 10;
  Budget budget(kTotal);
  std::atomic<std::int64_t> held = 0;
  std::atomic<bool> exceeded = false;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) {
          const std::int64_t amount = (7 * t + i) % (kTotal + 1);
          const Budget::Share share = budget.take(amount);
          if (held.fetch_add(amount) + amount > kTotal) {
            exceeded = true;
          }
          std::this_thread::yield();
          held -= amount;
        }
      });
    }
  }
  EXPECT_FALSE(exceeded);
  const Budget::Share all = budget.take(kTotal);  // all shares were returned
}

TEST(Budget, MoreThanThereIsInAllIsRefused) {
  Budget budget(10);
  EXPECT_TRUE(test::fails_with({"expected an amount from 0 to 10, got 11"},
                               [&] { const Budget::Share share = budget.take(11); }));
  EXPECT_TRUE(test::fails_with({"expected an amount from 0 to 10, got -1"},
                               [&] { const Budget::Share share = budget.take(-1); }));
}

}  // namespace
}  // namespace stagecoach
