#include "parallel/drawing/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace stagecoach {
namespace {

// A timeline narrower than this is unreadable, and no window is wider than the maximum.
constexpr int kNarrowest = 40;
constexpr int kWidest = 1000;

int number_in(const char* text) {
  int number = 0;
  const std::string_view digits = text == nullptr ? "" : text;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : 0;
}

}  // namespace

Terminal standard_output() {
  Terminal terminal;
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  int columns = number_in(std::getenv("COLUMNS"));
  if (winsize size{}; columns <= 0 && is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    columns = size.ws_col;
  }
  if (columns > 0) {
    terminal.columns = std::clamp(columns, kNarrowest, kWidest);
  }
  const char* no_colour = std::getenv("NO_COLOR");
  terminal.colours = is_terminal && (no_colour == nullptr || *no_colour == '\0');
  return terminal;
}

}  // namespace stagecoach
