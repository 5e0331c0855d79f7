#pragma once
/// @file
/// Compares the records of several runs: the figures of each run, and whether the runs are comparable.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/compare/run_record.h"

namespace stagecoach {

/// (epoch, value)
using EpochCurve = std::vector<std::pair<std::int64_t, double>>;

/// The figures of one run. An unknown figure has no value.
struct RunSummary {
  std::string name;
  std::optional<std::string> program;
  std::optional<std::string> schedule;
  std::optional<std::int64_t> ranks;
  std::string clock;   ///< "wall", "virtual", or "mixed"
  std::string epochs;  ///< the number of finished epochs, and which ones if they are not the first
  // Medians over all epochs except the first, which includes one-time work; for a single epoch, its own figures.
  double seconds = 0;
  std::optional<double> idle;
  std::optional<double> predicted_idle;
  std::optional<double> predicted_seconds;
  std::optional<double> speed_up;        ///< over the baseline; unknown if the two are not comparable
  std::optional<double> ideal_speed_up;  ///< over one device, when all ranks have equal work
  std::vector<std::int64_t> peak_bytes;
  std::vector<std::int64_t> versions;
  EpochCurve losses;
  EpochCurve test_accuracies;      ///< only of epochs for which it is known
  std::filesystem::path weights;   ///< weights.safetensors; empty if the run has no folder
  std::optional<double> accuracy;  ///< after the last epoch
  std::optional<double> test_accuracy;
  bool comparable = true;  ///< with the baseline
};

struct Comparison {
  std::vector<RunSummary> runs;
  std::size_t baseline = 0;          ///< index in `runs`
  std::vector<std::string> reasons;  ///< why runs are not comparable, one line each
  std::vector<std::string> notes;    ///< what could not be checked
};

/// Compares each run with runs[baseline].
Comparison compare(const std::vector<RunRecord>& runs, std::size_t baseline);

}  // namespace stagecoach
