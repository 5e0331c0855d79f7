#pragma once
/// @file
/// Controls whether batch norm layers update their running statistics in training.

namespace stagecoach {

/// Returns whether layers in this thread update their running statistics; true by default.
bool running_statistics_move();

/// Stops these updates in this thread until the end of the scope, for a forward that is run a second time.
class KeepRunningStatistics {
 public:
  KeepRunningStatistics();
  ~KeepRunningStatistics();
  KeepRunningStatistics(const KeepRunningStatistics&) = delete;
  KeepRunningStatistics& operator=(const KeepRunningStatistics&) = delete;

 private:
  bool before_;
};

}  // namespace stagecoach
