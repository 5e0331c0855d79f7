#include "parallel/training/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace stagecoach {
void print_line(const std::string& line) { print_text(line + "\n"); }

void print_text(const std::string& text) {
  if (std::ferror(stdout) == 0) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
}

ProgressBar::ProgressBar(std::int64_t epoch, std::int64_t steps, bool is_shown)
    : epoch_(epoch), steps_(steps), on_terminal_(is_shown && isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (on_terminal_) {
    std::fputs("\r\033[K", stderr);
  }
}

void ProgressBar::show(std::int64_t step, std::optional<double> loss) {
  const int percent = static_cast<int>(100 * step / steps_);
  if (!on_terminal_ || percent == shown_percent_) {
    return;
  }
  shown_percent_ = percent;
  constexpr int kWidth = 30;  // the whole line fits in 80 columns
  const int full = kWidth * percent / 100;
  fmt::print(stderr, "\r\033[KEpoch {} [{:=<{}}{: <{}}] {:3d}%  step {}/{}{}", epoch_, "", full, "", kWidth - full,
             percent, step, steps_, loss ? fmt::format("  loss {:.3f}", *loss) : "");
}

}  // namespace stagecoach
