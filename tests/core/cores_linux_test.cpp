// Pinned threads, as Linux has them.

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "core/base/system.h"

namespace stagecoach {
namespace {

/// Of the calling thread.
int cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

TEST(Cores, APinnedThreadStillSeesThoseOfTheProcess) {
  const std::vector<int> all = system::usable_cores();
  ASSERT_FALSE(all.empty());
  std::jthread([&] {
    EXPECT_TRUE(system::run_on_cores({all.back()}));
    EXPECT_EQ(cores_of_this_thread(), 1);
    EXPECT_EQ(::sched_getcpu(), all.back());
    EXPECT_EQ(system::usable_cores(), all);
    std::jthread([&] {
      EXPECT_EQ(cores_of_this_thread(), 1) << "a thread begins where its parent is";
      system::run_on_cores(system::usable_cores());
      EXPECT_EQ(cores_of_this_thread(), static_cast<int>(all.size()));
    });
  });
}

TEST(Cores, AThreadStaysWhereItIsWhenNoneIsNamed) {
  const int before = cores_of_this_thread();
  EXPECT_FALSE(system::run_on_cores({}));
  EXPECT_EQ(cores_of_this_thread(), before);
}

}  // namespace
}  // namespace stagecoach
