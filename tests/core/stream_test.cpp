// Streams and events on a CPU, where all work is done when the call returns.

#include "core/stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using namespace std::chrono_literals;

TEST(Stream, IsAlwaysDrained) {
  synchronize({});
  synchronize({{DeviceType::cpu, 5}, 3});
  EXPECT_TRUE(fails_with<UsageError>({"cpu:128"}, [] { synchronize({{DeviceType::cpu, 128}, 0}); }));
  EXPECT_TRUE(fails_with<UsageError>({"cuda:0"}, [] { synchronize({{DeviceType::cuda, 0}, 0}); }));
}

TEST(Stream, EqualsByDeviceAndNumber) {
  EXPECT_EQ((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 1}, 2}));
  EXPECT_NE((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 1}, 3}));
  EXPECT_NE((Stream{{DeviceType::cpu, 1}, 2}), (Stream{{DeviceType::cpu, 0}, 2}));
}

TEST(Event, IsReachedOnceRecorded) {
  Event event;
  EXPECT_FALSE(event.recorded());
  event.record({});
  EXPECT_TRUE(event.recorded());
  event.synchronize();
  event.wait({{DeviceType::cpu, 1}, 0});
}

TEST(Event, NeedsToBeRecorded) {
  const Event never;
  Event once;
  once.record({});
  EXPECT_TRUE(fails_with({"never recorded", "cpu:1"}, [&] { never.wait({{DeviceType::cpu, 1}, 0}); }));
  EXPECT_TRUE(fails_with({"never recorded"}, [&] { never.synchronize(); }));
  EXPECT_TRUE(fails_with({"two recorded"}, [&] { Event::seconds_between(never, once); }));
  EXPECT_TRUE(fails_with({"two recorded"}, [&] { Event::seconds_between(once, never); }));
  EXPECT_TRUE(fails_with<UsageError>({"cpu:200"}, [&] { once.record({{DeviceType::cpu, 200}, 0}); }));
}

TEST(Event, TimesWhatLiesBetween) {
  Event start, end;
  const auto before = std::chrono::steady_clock::now();
  start.record({});
  std::this_thread::sleep_for(5ms);
  end.record({});
  const std::chrono::duration<double> most = std::chrono::steady_clock::now() - before;
  EXPECT_GE(Event::seconds_between(start, end), 0.005);
  EXPECT_LE(Event::seconds_between(start, end), most.count());
  EXPECT_EQ(Event::seconds_between(end, start), -Event::seconds_between(start, end));
  start.record({});
  EXPECT_LE(Event::seconds_between(start, end), 0) << "the last record counts";
}

}  // namespace
}  // namespace stagecoach
