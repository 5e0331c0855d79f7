// How a program ends.

#include "parallel/training/exit_code.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/base/error.h"
#include "parallel/training/stop_protocol.h"
#include "tests/support/sanitized.h"

namespace stagecoach::test {
namespace {

TEST(ExitCode, IsThatOfTheException) {
  EXPECT_EQ(with_exit_code("program", [] { return 7; }), 7);
  EXPECT_EQ(with_exit_code("program", []() -> int { throw UsageError("usage"); }), 2);
  EXPECT_EQ(with_exit_code("program", []() -> int { throw DataError("data"); }), 3);
  EXPECT_EQ(with_exit_code("program", []() -> int { throw Error("a rank"); }), 4);
  EXPECT_EQ(with_exit_code("program", []() -> int { throw Interrupted{}; }), 130);
}

TEST(ExitCodeDeathTest, MemoryThatRunsOutIsFour) {
  const auto throws = []() -> int { throw std::bad_alloc(); };
  EXPECT_EXIT(std::exit(with_exit_code("program", throws)), ::testing::ExitedWithCode(4), "^program: out of memory");
}

TEST(ExitCodeDeathTest, AlsoInAFunctionThatMayNotThrow) {
  if (kSanitized) {
    GTEST_SKIP() << "a sanitizer's `new` ends the program when it has nothing left";
  }
  const auto terminates = [] {
    [&]() noexcept { std::vector<char>(std::size_t{1} << 60).back() = 1; }();
    return 0;
  };
  EXPECT_EXIT(std::exit(with_exit_code("program", terminates)), ::testing::ExitedWithCode(4), ": out of memory");
}

}  // namespace
}  // namespace stagecoach::test
