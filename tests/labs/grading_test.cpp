#include "tests/labs/grading.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "chapters/common/not_written.h"
#include "core/error.h"
#include "core/tensor.h"

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
  EXPECT_EQ(most_points_of(results), 60);
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

Tensor some_blank(int /*number*/) { throw lab::NotWritten(); }

TEST(Grading, NamesTheBlank) {
  const Explanation why = grade({{"is written", 10, [] { some_blank(3); }}}).front().why;
  EXPECT_EQ(why, (Explanation{.remark = "not written yet: some_blank, in tests/labs/grading_test.cpp"}));
}

}  // namespace
}  // namespace stagecoach::labs
