// When messages of one direction travel, by the virtual clock.

#include "parallel/comm/link_direction.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

constexpr Link kSlowLink{.latency = 10, .bytes_per_second = 1000};
constexpr double kFiveSecondsOfBytes = 5000;  // on the link

TEST(LinkDirection, ALongMessageStartsWhenItIsSentAndItsReceiveIsPosted) {
  LinkDirection early(kSlowLink);
  EXPECT_EQ(early.match(early.send(kFiveSecondsOfBytes, 100), early.post(7)), 100 + 5 + 10);
  LinkDirection late(kSlowLink);
  EXPECT_EQ(late.match(late.send(kFiveSecondsOfBytes, 7), late.post(100)), 100 + 5 + 10);
}

TEST(LinkDirection, AShortMessageStartsWhenItIsSent) {
  LinkDirection direction(kSlowLink);
  const auto first = direction.send(kEagerBytes, 7);
  const auto second = direction.send(1000, 8);
  EXPECT_EQ(direction.match(first, direction.post(100)), 7 + kEagerBytes / 1000 + 10);
  EXPECT_EQ(direction.match(second, direction.post(100)), 7 + kEagerBytes / 1000 + 1 + 10) << "after the first";
}

TEST(LinkDirection, LongMessagesWaitForThoseBeforeThemAndShortOnesDoNot) {
  LinkDirection direction(kSlowLink);
  const auto first = direction.send(kFiveSecondsOfBytes, 0);
  const auto second = direction.send(kFiveSecondsOfBytes, 1);
  const auto number = direction.send(8, 2);
  EXPECT_EQ(direction.match(first, direction.post(0)), 5 + 10);
  EXPECT_EQ(direction.match(second, direction.post(0)), 5 + 5 + 10);
  EXPECT_DOUBLE_EQ(direction.match(number, direction.post(0)), 2 + 0.008 + 10);
  const auto later = direction.send(kFiveSecondsOfBytes, 100);
  EXPECT_EQ(direction.match(later, direction.post(0)), 100 + 5 + 10) << "the link is free again";
}

// Receives that are posted in another order than the sends: times do not depend on which match is seen first.
TEST(LinkDirection, MessagesThatCrossDoNotWaitForEachOther) {
  for (const bool first_is_first : {true, false}) {
    LinkDirection direction(kSlowLink);
    const auto first = direction.send(kFiveSecondsOfBytes, 0);
    const auto second = direction.send(kFiveSecondsOfBytes, 1);
    const auto post_of_second = direction.post(2);
    const auto post_of_first = direction.post(3);
    const auto match_first = [&] { EXPECT_EQ(direction.match(first, post_of_first), 3 + 5 + 10); };
    const auto match_second = [&] { EXPECT_EQ(direction.match(second, post_of_second), 2 + 5 + 10); };
    if (first_is_first) {
      match_first();
      match_second();
    } else {
      match_second();
      match_first();
    }
    const auto third = direction.send(kFiveSecondsOfBytes, 4);
    EXPECT_EQ(direction.match(third, direction.post(4)), 3 + 5 + 5 + 10) << "after both";
  }
}

TEST(LinkDirection, AWithdrawnReceiveHoldsNothingUp) {
  LinkDirection direction(kSlowLink);
  direction.cancel(direction.post(0));
  const auto first = direction.send(kFiveSecondsOfBytes, 0);
  const auto second = direction.send(kFiveSecondsOfBytes, 0);
  EXPECT_EQ(direction.match(first, direction.post(1)), 1 + 5 + 10);
  EXPECT_EQ(direction.match(second, direction.post(1)), 1 + 5 + 5 + 10);
}

}  // namespace
}  // namespace stagecoach
