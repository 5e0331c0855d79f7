#pragma once
/// @file
/// What a rank is doing, for the errors that other ranks will read.

#include <string>

namespace stagecoach {

/// Marks this thread as working on a stage and a micro-batch until the end of the scope.
class Activity {
 public:
  static constexpr int kNone = -1;
  struct Work {
    const char* operation = "";
    int stage = kNone;
    int microbatch = kNone;
  };

  /// `operation` is a string literal, such as "forward". It may be of no micro-batch, or of no stage either.
  Activity(const char* operation, int stage, int microbatch);
  /// Until the end of the scope it does something else, such as "end of a step".
  explicit Activity(const char* what) : Activity(what, kNone, kNone) {}
  ~Activity();
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  friend Work current_work();
  const Activity* before_;
  int exceptions_before_;
  Work work_;
};

/// "forward of stage 2, micro-batch 5", or "".
std::string to_string(const Activity::Work& work);

/// What this thread does; outside of any activity an operation without a name.
Activity::Work current_work();
std::string current_activity();

/// The innermost activity of this thread that an exception has ended, or ""; then forgets it.
std::string take_failed_activity();

}  // namespace stagecoach
