// Numbers out of texts and files stay within what the program can count with.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "parallel/comm/link.h"
#include "parallel/comm/tcp/control_channel.h"
#include "parallel/comm/wait_policy.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/text.h"
#include "tests/support/errors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using SteadyClock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A clock counts nanoseconds in 64 bits: 1e300 seconds, turned into them, may be any moment, also one that has passed.
TEST(Deadlines, AreAheadHoweverLongTheTimeout) {
  for (const double timeout : {0.5, 1e6, 1e10, 1e300, kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    const auto before = SteadyClock::now();
    const SteadyClock::time_point deadline = deadline_after(Seconds(timeout));
    EXPECT_GE(deadline, before + std::chrono::milliseconds(500)) << timeout;
    EXPECT_LE(deadline, SteadyClock::now() + std::chrono::seconds(1'000'000'001)) << timeout;
  }
  EXPECT_LT(deadline_after(Seconds(-1e300)), SteadyClock::now());
}

TEST(Deadlines, OfAControlChannelAreAheadHoweverLongTheTimeout) {
  const BootstrapServer server({{"127.0.0.1", 0}, "a token of tests"}, 2);
  ControlChannel one(server.address(), "test", 0, 2, Seconds(1e300));
  ControlChannel other(server.address(), "test", 1, 2, Seconds(1e300));
  one.post(1, "key", "value");
  EXPECT_EQ(ControlWait(other, {}, [] { return "waiting"; }).take("key"), "value");
}

TEST(WaitTimes, BeginAnewWhenTheProcessHasStoodStill) {
  const SteadyClock::time_point start{};
  WaitTime time(start);
  for (auto now = start; now < start + std::chrono::seconds(60); now += WaitTime::kLongestNap) {
    EXPECT_EQ(time.look(now), now);
    EXPECT_EQ(time.began(), start);
  }
  const auto continued = start + std::chrono::seconds(90);
  time.look(continued);
  EXPECT_EQ(time.began(), continued);
  time.look(continued + WaitTime::kLongestNap);
  EXPECT_EQ(time.began(), continued);
}

TEST(Bounds, OfATimeout) {
  const auto body = [](Rank&) { FAIL() << "nothing runs"; };
  for (const double timeout : {-1.0, kLongestTimeout * 1.01, 1e300, kInfinity, std::nan("")}) {
    EXPECT_TRUE(fails_with<UsageError>({"a timeout of", "at most 1000000"}, [&] {
      launch({.ranks = 1, .timeout = timeout}, body);
    })) << timeout;
  }
}

TEST(Bounds, OfASplit) {
  for (const char* text : {"2147483647,2147483647,14", "32769", "4294967298", "-1", " 1", "1,", ""}) {
    EXPECT_TRUE(fails_with<UsageError>({"layers per stage, such as 5,4,3", "from 1 to 32768"}, [&] {
      split_from_text(text);
    })) << text;
  }
  std::string many = "1";
  for (int i = 0; i < 1 << 15; ++i) {
    many += ",1";
  }
  EXPECT_TRUE(fails_with<UsageError>({"at most 32768"}, [&] { split_from_text(many); }));
  EXPECT_TRUE(fails_with<UsageError>({"got 4294967308"}, [] {
    stages_of(Sequential(), {2147483647, 2147483647, 14});
  })) << "counted in 64 bits";
}

TEST(Bounds, OfAMesh) {
  for (const char* text : {"dp=2147483647,pp=2", "dp=0", "dp=-1", "dp= 1", "dp=1e300", "pp", "dp=2,", ""}) {
    EXPECT_TRUE(fails_with<UsageError>({"is not a mesh", "from 1 to 16384"}, [&] { mesh_from_text(text); })) << text;
  }
}

TEST(Bounds, OfALink) {
  for (const char* text :
       {"3601,1", "0,0.5", "0,1e19", "1e308,1", "0,1e308GB/s", "1e-400,1", "-1,1", "nan,1", "0,inf"}) {
    EXPECT_TRUE(fails_with<UsageError>({"is not a link", "at most 3600 s", "from 1 to 1e+18 bytes"}, [&] {
      link_from_text(text);
    })) << text;
  }
  EXPECT_EQ(link_from_text("3600,1"), (Link{3600, 1}));
}

// Before anything is allocated for as many: 2147483647 + 1 is no int, and 2147483646 took 2 GB.
TEST(Bounds, OfATableOfActions) {
  const auto refused = [](const std::string& text, std::initializer_list<const char*> parts) {
    return fails_with<UsageError>(parts, [&] { schedule_from_text(text, "my.csv"); });
  };
  EXPECT_TRUE(refused("0F2147483647", {"line 1, column 1", "expected a micro-batch below 1"}));
  EXPECT_TRUE(refused("0F0,0B0\n1F0,2147483646F0", {"line 2, column 5", "expected a stage below 4"}));
  EXPECT_TRUE(refused("0F3,0B0,0F1", {"a micro-batch below 3"}));
  EXPECT_EQ(schedule_from_text("0F2,0B0,0F1", "my.csv").microbatches, 3) << "what is missing is check's to say";
  // A long file may name stages and micro-batches of which all pairs would be too many.
  const std::string many = "4000F0,0F4000" + std::string(5000, ',');
  EXPECT_TRUE(refused(many, {"got 4001 x 4001", "4194304 pairs"}));
}

}  // namespace
}  // namespace stagecoach
