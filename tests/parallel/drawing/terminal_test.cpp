// What standard output is.
#include "parallel/drawing/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

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

/// A terminal of `columns` as standard output, as long as it lives.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns)
      : controller_(posix_openpt(O_RDWR | O_NOCTTY)), output_(dup(STDOUT_FILENO)) {
    EXPECT_EQ(grantpt(controller_), 0);
    EXPECT_EQ(unlockpt(controller_), 0);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(controller_, TIOCSWINSZ, &size), 0);
    const int terminal = open(ptsname(controller_), O_RDWR | O_NOCTTY);
    EXPECT_EQ(dup2(terminal, STDOUT_FILENO), STDOUT_FILENO);
    close(terminal);
  }
  ~PseudoTerminal() {
    dup2(output_, STDOUT_FILENO);
    close(output_);
    close(controller_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

 private:
  int controller_;
  int output_;
};

TEST_F(StandardOutput, IsAsWideAsItsTerminalAndHasColours) {
  if (!std::filesystem::exists("/dev/pts/ptmx")) {
    GTEST_SKIP() << "no pseudo-terminals: /dev/pts is not mounted";
  }
  unsetenv("COLUMNS");
  Terminal terminal;
  {
    const PseudoTerminal wide(97);
    terminal = standard_output();
  }
  EXPECT_EQ(terminal.columns, 97);
  EXPECT_TRUE(terminal.colours);
  {
    const PseudoTerminal unknown(0);
    terminal = standard_output();
  }
  EXPECT_EQ(terminal.columns, 80);
}

TEST_F(StandardOutput, HasNoColoursWhereTheyAreNotWanted) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(standard_output().colours);
  unsetenv("NO_COLOR");
  EXPECT_EQ(standard_output().colours, isatty(STDOUT_FILENO) == 1);
}

}  // namespace
}  // namespace stagecoach
