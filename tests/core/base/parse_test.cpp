#include "core/base/parse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>

namespace stagecoach {
namespace {

// Of standard libraries without std::from_chars for double there is nothing to compare with.
#ifdef __cpp_lib_to_chars
class Strtod : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Strtod, ReadsWhatFromCharsReads) {
  const std::string_view text = GetParam();
  double expected = 77;
  double value = 77;
  const auto [expected_end, expected_error] = std::from_chars(text.data(), text.data() + text.size(), expected);
  const auto [end, error] = parse_with_strtod(text, value);
  EXPECT_EQ(error, expected_error);
  EXPECT_EQ(end - text.data(), expected_end - text.data());
  EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << value << ' ' << expected;
}

INSTANTIATE_TEST_SUITE_P(Texts, Strtod,
                         ::testing::Values("0", "-0", "1.5", "-1.5e3", "1e", "1e+", "1e+5x", ".5", "5.", ".", "", "-",
                                           "+1", "-+1", "--1", " 1", "\t1", "- 1", "1 ", "1,5", "0x1p3", "-0X1p3", "0x",
                                           "inf", "-inf", "infinity", "INF", "nan", "-nan", "in", "1e400", "-1e400",
                                           "1e-400", "4.9e-324", "1e-310", "0.1", "123456789012345678901234567890",
                                           "9007199254740993", "abc", "1.97, 2"));
#endif

TEST(Parse, AllOfATextIsANumber) {
  EXPECT_EQ(number_from<int>("12"), 12);
  EXPECT_EQ(number_from<int>("12x"), std::nullopt);
  EXPECT_EQ(number_from<int>(""), std::nullopt);
  EXPECT_EQ(number_from<int>("99999999999"), std::nullopt);
  EXPECT_EQ(number_from<double>("2e-05"), 2e-05);
  EXPECT_EQ(number_from<double>("2e-05 "), std::nullopt);
}

TEST(Parse, NumbersAreWhereTheFormHasThem) {
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(numbers_in("epoch-3-step-40", "epoch-#-step-#"), (Numbers{3, 40}));
  EXPECT_EQ(numbers_in("epoch-0-step-999999999999999999", "epoch-#-step-#"), (Numbers{0, 999999999999999999}));
  EXPECT_EQ(numbers_in("notes", "notes"), Numbers{});
  for (const char* other : {"", "epoch-", "epoch-3", "epoch-3-step-", "epoch--step-4", "epoch-3-step-4-good",
                            "epoch-3-step-4 ", " epoch-3-step-4", "epoch-03-step-4", "epoch-00-step-4",
                            "epoch--3-step-4", "epoch-+3-step-4", "epoch-3-step-0x4", "Epoch-3-step-4",
                            "epoch-3-step-1000000000000000000", "epoch-99999999999999999999-step-4"}) {
    EXPECT_EQ(numbers_in(other, "epoch-#-step-#"), std::nullopt) << other;
  }
}

TEST(Parse, TextIsSplitAtEachSeparator) {
  EXPECT_EQ(split_text("a,,b,", ','), (std::vector<std::string_view>{"a", "", "b", ""}));
  EXPECT_EQ(split_text("", ','), (std::vector<std::string_view>{""}));
}

}  // namespace
}  // namespace stagecoach
