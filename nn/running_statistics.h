#pragma once
/// @file
/// Whether batch norm layers in training move their running statistics.

namespace stagecoach {

/// True (the default in every thread) while they do.
bool running_statistics_move();

/// Keeps them as they are in this thread until the end of the scope: for a forward that is run a second time.
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
