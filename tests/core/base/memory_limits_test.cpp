// Memory that runs out, in processes of their own: a limit on it cannot be taken back.

#include "core/base/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/system.h"
#include "core/tensor.h"
#include "tests/support/address_space.h"
#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

namespace stagecoach {
namespace {

using test::fails_with;

constexpr const char* kNoLimit = "this system does not report or limit the size of the address space";

bool has_limit() { return system::address_space() && test::holds_limit_on_address_space(); }

/// Leaves this process about `bytes` bytes of address space.
void leave(std::uint64_t bytes) {
  const std::uint64_t most = system::address_space().value() + bytes;
  const rlimit limit{most, most};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(MemoryLimits, AFileThatDoesNotFitIsNamedWithItsSize) {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - 1;
  EXPECT_TRUE(fails_with<DataError>({"some/file", "18446744073709551614 bytes", "are available"},
                                    [&] { require_memory_for("some/file", most); }));
  EXPECT_NO_THROW(require_memory_for("some/file", 1));
}

// The kernel would promise the memory, and kill the program that uses it.
TEST(MemoryLimits, ATensorThatDoesNotFitIsRefusedBeforeItIsUsed) {
  const auto floats = static_cast<std::int64_t>(available_memory() / sizeof(float));
  const std::int64_t more = 256 << 20;  // than others give back meanwhile
  EXPECT_TRUE(
      fails_with({"out of memory on cpu:0", "use a smaller batch or model"}, [&] { Tensor::empty({floats + more}); }));
}

TEST(MemoryLimitsDeathTest, TheAddressSpaceCounts) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers reserve more address space than a limit leaves";
  }
  if (!has_limit()) {
    GTEST_SKIP() << kNoLimit;
  }
  EXPECT_EXIT(
      {
        leave(std::uint64_t{64} << 20);
        std::exit(available_memory() <= std::uint64_t{64} << 20 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(MemoryLimitsDeathTest, TheReserveIsThereForThoseWhoReport) {
  if (test::kSanitized) {
    GTEST_SKIP() << "sanitizers bring a `new` of their own";
  }
  if (!has_limit()) {
    GTEST_SKIP() << kNoLimit;
  }
  EXPECT_EXIT(
      {
        std::vector<std::vector<char>> taken;
        taken.reserve(100'000);
        leave(std::uint64_t{64} << 20);
        keep_memory_reserve();
        bool told = false;
        try {
          for (;;) {
            taken.emplace_back(std::size_t{1} << 20);
          }
        } catch (const std::bad_alloc&) {
          const std::string report(std::size_t{2} << 20, 'x');
          told = report.back() == 'x';
        }
        std::exit(told ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace stagecoach
