#pragma once
/// @file
/// What a program says about its epochs: the line for people, the object for programs, and a progress bar.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

/// What an epoch should have been like: shares of its time, and seconds.
struct Expected {
  double ideal_idle = 0;  ///< with stages that take equally long
  /// Of a pipeline: what `simulate` says with the costs measured in this epoch.
  std::optional<double> predicted_idle = {};
  std::optional<double> predicted_seconds = {};
  /// Of an asynchronous pipeline: what `simulate` says with the time of each single action; and the seconds of work of
  /// the busiest rank, which no schedule can undercut.
  std::optional<double> replayed_seconds = {};
  std::optional<double> busiest_seconds = {};
  /// Of data parallel training: the share of the reductions' time that lay within backwards.
  std::optional<double> overlap = {};
  std::vector<int> versions = {};  ///< of the weights, the most at once on each rank, as the ledger says
};

struct EpochResult {
  std::int64_t epoch = 0;  ///< from 1
  double loss = 0;         ///< mean over the training pictures, as they were met
  double accuracy = 0;     ///< likewise, 0 … 1
  double test_accuracy = 0;
  double seconds = 0;  ///< of training, without the test
  std::string clock = "wall";
  double images_per_second = 0;
  double idle = 0;                       ///< share of the time in which the device had nothing to do, 0 … 1
  std::vector<std::int64_t> peak_bytes;  ///< one a rank
  Expected expected = {};
};

/// "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s, test acc: 0.48, 27310 img/s, idle 21.4% (ideal 20.0%)"; from a
/// virtual clock with ", virtual" at its end.
std::string epoch_line(const EpochResult& result);
/// The object of metrics.jsonl, one line without its end.
std::string epoch_json(const EpochResult& result);
/// The epoch that a line of metrics.jsonl is about; 0 if it is none.
std::int64_t epoch_of_json(const std::string& line);

/// A bar on standard error, only if that is a terminal.
class ProgressBar {
 public:
  /// Without `shows` it stays silent.
  ProgressBar(std::int64_t epoch, std::int64_t steps, bool shows = true);
  ~ProgressBar();
  /// `loss` is the mean of the epoch so far, where it is known.
  void show(std::int64_t step, std::optional<double> loss);

 private:
  std::int64_t epoch_;
  std::int64_t steps_;
  bool on_terminal_;
  int shown_percent_ = -1;
};

}  // namespace stagecoach
