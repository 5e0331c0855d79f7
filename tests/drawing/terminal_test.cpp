// What standard output is.
#include "drawing/terminal.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace stagecoach {
namespace {

/// Sets COLUMNS for the length of a test. Standard output is not a terminal in it, or one of unknown width.
class StandardOutput : public testing::Test {
 protected:
  ~StandardOutput() override { unsetenv("COLUMNS"); }
};

TEST_F(StandardOutput, IsAsWideAsTheEnvironmentSays) {
  setenv("COLUMNS", "120", 1);
  EXPECT_EQ(standard_output().columns, 120);
  setenv("COLUMNS", "7", 1);
  EXPECT_EQ(standard_output().columns, 40) << "narrower, nothing can be read";
  setenv("COLUMNS", "2000000000", 1);
  EXPECT_EQ(standard_output().columns, 1000);
}

TEST_F(StandardOutput, Has80ColumnsWhereNobodyKnows) {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    GTEST_SKIP() << "the terminal knows its width";
  }
  for (const char* columns : {"", "0", "-3", "wide", "80x", "99999999999999999999"}) {
    setenv("COLUMNS", columns, 1);
    EXPECT_EQ(standard_output().columns, 80) << columns;
  }
  unsetenv("COLUMNS");
  EXPECT_EQ(standard_output().columns, 80);
}

TEST_F(StandardOutput, HasNoColoursWhereTheyAreNotWanted) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(standard_output().colours);
  unsetenv("NO_COLOR");
  EXPECT_EQ(standard_output().colours, isatty(STDOUT_FILENO) == 1);
}

}  // namespace
}  // namespace stagecoach
