#pragma once
/// @file
/// Whether operations are recorded for a backward pass.

namespace stagecoach {

/// True (the default in every thread) while operations record their graph.
bool grad_enabled();

/// Switches recording off in this thread until the end of the scope: evaluation, and optimizer steps.
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
