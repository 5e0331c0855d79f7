#pragma once
/// @file
/// Records what a rank is working on, for the error texts of this rank and of others.

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

  /// `operation` is a string literal, such as "forward". Pass kNone as `microbatch` for work on no micro-batch, and as
  /// `stage` too for work on no stage.
  Activity(const char* operation, int stage, int microbatch);
  /// Marks this thread as doing something that belongs to no stage, such as "end of a step".
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

/// Returns text such as "forward of stage 2, micro-batch 5", or "" for work without a name.
std::string to_string(const Activity::Work& work);

/// Returns what this thread is working on; outside any activity, the operation's name is empty.
Activity::Work current_work();
std::string current_activity();

/// Returns the innermost activity of this thread that an exception has ended, or "", and then forgets it.
std::string take_failed_activity();

}  // namespace stagecoach
