#pragma once
/// @file
/// What a training shows while it runs: lines on standard output, and a progress bar on a terminal.

#include <cstdint>
#include <optional>
#include <string>

namespace stagecoach {

/// Prints to standard output, and flushes it. After a failure (a full disk, a closed pipe) nothing more is printed: the
/// training continues, since it still writes its files, and the program reports the failure when it ends.
void print_text(const std::string& text);
/// Prints `line` and an end of line.
void print_line(const std::string& line);

/// A progress bar on standard error; it is shown only if that is a terminal.
class ProgressBar {
 public:
  /// Without `is_shown` it prints nothing.
  ProgressBar(std::int64_t epoch, std::int64_t steps, bool is_shown = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Shows that `step` steps are done. `loss` is the mean of the epoch so far, if known.
  void show(std::int64_t step, std::optional<double> loss);

 private:
  std::int64_t epoch_;
  std::int64_t steps_;
  bool on_terminal_;
  int shown_percent_ = -1;
};

}  // namespace stagecoach
