#pragma once
/// @file
/// Whether operations are recorded for a backward pass.

namespace stagecoach {

/// Returns whether operations of this thread are recorded (the default).
bool grad_enabled();

/// Disables recording in this thread until the end of the scope, for evaluation and optimizer steps.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

}  // namespace stagecoach
