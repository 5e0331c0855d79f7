#include "tests/labs/grading.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "chapters/common/not_written.h"
#include "core/base/error.h"
#include "core/tensor.h"
#include "tests/labs/descendants.h"

namespace stagecoach::labs {
namespace {

Criterion failing(const std::string& name, const std::string& expected, const std::string& got,
                  const std::string& drawing = {}) {
  return {name, 10, [=] { throw Failed(expected, got, "a section", drawing); }};
}

TEST(Grading, SaysOnceWhatFailsInTheSameWay) {
  const std::string report = report_of(grade({failing("first", "A", "the same mistake", "a drawing\n"),
                                              failing("second", "B", "the same mistake", "a drawing\n"),
                                              failing("third", "C", "another mistake", "a drawing\n")}));
  EXPECT_EQ(report, R"([  0/10 ] first
          expected: A
          got:      the same mistake
          look at:  a section
          a drawing
[  0/10 ] second
          expected: B
          got:      as above, in "first"
          drawing:  as above, in "first"
[  0/10 ] third
          expected: C
          got:      another mistake
          look at:  a section
          drawing:  as above, in "first"
)");
}

TEST(Grading, DoesNotTakeTwoEqualNumbersForTheSameMistake) {
  const std::string report = report_of(grade({failing("first", "3 messages", "2"), failing("second", "1 rank", "2")}));
  EXPECT_EQ(report.find("as above"), std::string::npos) << report;
}

TEST(Grading, LeavesOutWhatNeedsAFailedCriterion) {
  const std::vector<Result> results = grade({{"works", 10, [] {}},
                                             failing("fails", "A", "B"),
                                             {"needs both", 20, [] {}, "", {"works", "fails"}},
                                             {"needs one", 20, [] {}, "", {"works"}}});
  EXPECT_EQ(points_of(results), 30);
  EXPECT_EQ(max_points_of(results), 60);
  EXPECT_FALSE(results[2].was_graded);
  EXPECT_EQ(results[2].why.remark, "not graded yet: repair \"fails\" first");
  EXPECT_TRUE(results[3].was_graded);
}

TEST(Grading, SaysWhichCaseThrewAndNotWhereTheGraderNoticedIt) {
  const auto check = [] {
    set_case("4 ranks");
    fail("rank 4 does not exist");
  };
  const Explanation why = grade({{"throws", 10, check, "the header"}}).front().why;
  EXPECT_EQ(why.expected, "the call returns, for 4 ranks");
  EXPECT_EQ(why.got, "an exception: rank 4 does not exist");
  EXPECT_EQ(why.look_at, "the header");
}

TEST(Grading, SaysInWhichCaseTheAnswerCrashed) {
  const auto check = [] {
    set_case("5 ranks");
    std::abort();
  };
  const std::vector<Result> results = grade({{"crashes", 10, check, "the header"}, failing("fails", "A", "B")});
  EXPECT_EQ(results[0].why.expected, "the call returns, for 5 ranks");
  EXPECT_EQ(results[0].why.got, "it crashed: Aborted");
  EXPECT_EQ(results[0].why.look_at, "the header");
  EXPECT_EQ(results[1].why.expected, "A");
}

/// Asks again and again whether something has come, until it is ended.
void poll_forever() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Computes for `percent` of the time, as a thread does that gets so much of a core, until it is ended.
void compute_forever(int percent) {
  using Clock = std::chrono::steady_clock;
  for (;;) {
    for (const auto end = Clock::now() + std::chrono::milliseconds(percent); Clock::now() < end;) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100 - percent));
  }
}

TEST(Grading, TellsALoopOnABusyMachineFromAWait) {
  if (!processor_seconds(::getpid())) {
    GTEST_SKIP() << "this system does not tell what other processes use";
  }
  const Limits limits{.processor_seconds = 1, .idle_seconds = 3};
  const std::vector<Result> results =
      grade({{"loops", 10, [] { compute_forever(30); }}, {"waits", 10, poll_forever}}, limits);
  EXPECT_EQ(results[0].why.got, "it used more than 1 s of processor time: an endless loop, or a very long one");
  EXPECT_EQ(results[1].why.got, "it did nothing for 3 s: it waits for something that does not come");
}

TEST(Grading, EndsWhatNeitherComputesMuchNorWaits) {
  const Limits limits{.wall_seconds = 1};
  const std::vector<Result> results = grade({{"dawdles", 10, [] { compute_forever(30); }}}, limits);
  EXPECT_EQ(results[0].why.got, "it did not end within 1 s");
}

TEST(Grading, SaysThatALoopHasUsedUpTheMemory) {
  const auto appends = [] {
    for (std::vector<std::vector<char>> all;;) {
      all.emplace_back(std::size_t{1} << 28);
    }
  };
  const Explanation why = grade({{"appends", 10, appends}}, {.memory = std::size_t{1} << 30}).front().why;
  EXPECT_NE(why.got.find("more memory was asked for than a check may use"), std::string::npos) << why.got;
}

Tensor some_blank(int /*number*/) { throw lab::NotWritten(); }

TEST(Grading, NamesTheBlank) {
  const Explanation why = grade({{"is written", 10, [] { some_blank(3); }}}).front().why;
  EXPECT_EQ(why, (Explanation{.remark = "not written yet: some_blank, in tests/labs/grading_test.cpp"}));
}

}  // namespace
}  // namespace stagecoach::labs
