#include "parallel/drawing/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/parse.h"

namespace stagecoach {
namespace {

// A timeline narrower than this is unreadable, and no window is wider than the maximum.
constexpr int kNarrowest = 40;
constexpr int kWidest = 1000;

}  // namespace

Terminal standard_output() {
  Terminal terminal;
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const char* variable = std::getenv("COLUMNS");
  int columns = number_from<int>(variable == nullptr ? "" : variable).value_or(0);
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
