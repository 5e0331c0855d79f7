#include "core/base/wakeup.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace stagecoach {
namespace {

bool is_set(const Wakeup& event, int milliseconds = 0) {
  pollfd query{.fd = event.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&query, 1, milliseconds) == 1;
}

TEST(Wakeup, IsSetUntilItIsCleared) {
  const Wakeup event;
  EXPECT_FALSE(is_set(event));
  event.set();
  EXPECT_TRUE(is_set(event));
  EXPECT_TRUE(is_set(event));
  event.clear();
  EXPECT_FALSE(is_set(event));
  event.clear();
  EXPECT_FALSE(is_set(event));
}

TEST(Wakeup, SettingItOftenDoesNotBlock) {
  const Wakeup event;
  for (int i = 0; i < 100'000; ++i) {  // more than the buffer of a pipe holds
    event.set();
  }
  event.clear();
  EXPECT_FALSE(is_set(event));
}

TEST(Wakeup, WakesAThreadThatPolls) {
  const Wakeup event;
  const std::jthread other([&] { event.set(); });
  EXPECT_TRUE(is_set(event, 60'000));
}

}  // namespace
}  // namespace stagecoach
