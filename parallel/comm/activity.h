#pragma once
/// @file
/// What a rank is doing, for the errors that other ranks will read.

#include <string>

namespace stagecoach {

/// Until the end of the scope this thread works on a stage and a micro-batch.
class Activity {
 public:
  /// `operation` is a string literal, such as "forward". It may be of no micro-batch, or of no stage either.
  Activity(const char* operation, int stage, int microbatch);
  /// Until the end of the scope it does something else, such as "end of a step".
  explicit Activity(const char* what) : Activity(what, kNone, kNone) {}
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

  static constexpr int kNone = -1;

 private:
  std::string text() const;

  const Activity* before_;
  int exceptions_before_;
  friend std::string current_activity();
  const char* operation_;
  int stage_;
  int microbatch_;
};

/// "forward of stage 2, micro-batch 5", or "" outside of any.
std::string current_activity();

/// The innermost activity of this thread that an exception has ended, or ""; then forgets it.
std::string take_failed_activity();

}  // namespace stagecoach
