#pragma once
/// @file
/// What a run reports about an epoch: a line for people, and an object for programs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/training/step_causes.h"

namespace stagecoach {

/// The predicted idle shares and seconds of an epoch.
struct Prediction {
  double ideal_idle = 0;  ///< if all stages took equally long
  /// For a pipeline: the results of `simulate` for the costs measured in this epoch.
  std::optional<double> predicted_idle = {};
  std::optional<double> predicted_seconds = {};
  /// For an asynchronous pipeline: the result of `simulate` for the measured time of each single action, and the
  /// working time of the busiest rank, which is a lower bound for every schedule.
  std::optional<double> replayed_seconds = {};
  std::optional<double> busiest_seconds = {};
  /// For data-parallel training: the share of the reductions' time that overlaps with backwards.
  std::optional<double> overlap = {};
  std::vector<int> versions = {};  ///< largest number of weight versions at once on each rank, from the ledger
  std::vector<int> delays = {};    ///< largest number of updates by which gradients are late, per stage, likewise
  std::optional<StepCauses> causes = {};  ///< for ranks or devices that wait for each other
  std::vector<NamedNumbers> memory = {};  ///< of each rank, by what takes it, in bytes

  /// Adds a time in which all ranks wait.
  void add_wait(double seconds);
};

/// The traffic of one step from one rank to another.
struct LinkBytes {
  int from = 0;
  int to = 0;
  double bytes = 0;
};

struct EpochResult {
  std::int64_t epoch = 0;                    ///< from 1
  double loss = 0;                           ///< mean over the training images, each at the time of its forward
  std::optional<double> accuracy = {};       ///< likewise, 0 … 1; empty for a loss without labels
  std::optional<double> test_accuracy = {};  ///< empty without a test, too
  std::optional<double> test_loss = {};      ///< mean over the test's images; empty if the test added no losses
  double seconds = 0;                        ///< of training, without the test
  std::string clock = "wall";
  double images_per_second = 0;
  double idle = 0;                       ///< share of the time in which the ranks waited, 0 … 1
  std::vector<std::int64_t> peak_bytes;  ///< per rank
  Prediction prediction = {};
  std::int64_t steps = 0;
  std::vector<LinkBytes> links = {};  ///< of training, where something was sent
  NamedNumbers step_parts = {};       ///< in seconds (see step_parts); empty where they were not measured
};

/// Returns "Epoch: 3, Loss: 1.97, acc: 0.49, time cost: 1.83s, test acc: 0.48, 27310 img/s, idle 21.4% (ideal 20.0%)",
/// without the accuracies that there are not, and with "test loss: 2.01" for a test that has losses alone; with another
/// clock than the wall clock it ends with its name, as in ", modelled".
std::string epoch_line(const EpochResult& result);
/// Returns the object for metrics.jsonl as one line, without a newline.
std::string epoch_json(const EpochResult& result);
/// Returns the epoch of a line of metrics.jsonl, which `where` names; none if the line is about something else. Throws
/// DataError if the line is damaged.
std::optional<std::int64_t> epoch_of_json(const std::string& line, const std::string& where);

}  // namespace stagecoach
