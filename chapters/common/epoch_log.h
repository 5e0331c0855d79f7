#pragma once
/// @file
/// What a run reports of an epoch: a line for people, and an object for programs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

/// What an epoch should have been like: shares of its time, and seconds.
struct Prediction {
  double ideal_idle = 0;  ///< if all stages took equally long
  /// Of a pipeline: what `simulate` returns for the costs measured in this epoch.
  std::optional<double> predicted_idle = {};
  std::optional<double> predicted_seconds = {};
  /// Of an asynchronous pipeline: what `simulate` returns for the measured time of each single action; and the seconds
  /// of work of the busiest rank, which no schedule can undercut.
  std::optional<double> replayed_seconds = {};
  std::optional<double> busiest_seconds = {};
  /// Of data parallel training: the share of the reductions' time that overlaps with backwards.
  std::optional<double> overlap = {};
  std::vector<int> versions = {};  ///< of the weights, the most at once on each rank, from the ledger
};

struct EpochResult {
  std::int64_t epoch = 0;  ///< from 1
  double loss = 0;         ///< mean over the training images, each when it was used
  double accuracy = 0;     ///< likewise, 0 … 1
  double test_accuracy = 0;
  double seconds = 0;  ///< of training, without the test
  std::string clock = "wall";
  double images_per_second = 0;
  double idle = 0;                       ///< share of the time in which the ranks waited, 0 … 1
  std::vector<std::int64_t> peak_bytes;  ///< per rank
  Prediction prediction = {};
};

/// "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s, test acc: 0.48, 27310 img/s, idle 21.4% (ideal 20.0%)"; with a
/// virtual clock it ends with ", virtual".
std::string epoch_line(const EpochResult& result);
/// The object of metrics.jsonl, as one line, without the end of the line.
std::string epoch_json(const EpochResult& result);
/// The epoch of a line of metrics.jsonl; 0 if it is not an epoch's.
std::int64_t epoch_of_json(const std::string& line);

}  // namespace stagecoach
