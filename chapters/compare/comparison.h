#pragma once
/// @file
/// Compares the records of several runs: the figures of each run, whether the runs are comparable, and how that is
/// shown.

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
  std::string clock;   ///< "wall", "virtual", "modelled", or "mixed"
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
  std::optional<double> link_bytes;  ///< of a plan, as the next one
  std::optional<std::int64_t> staleness;
  EpochCurve losses;               ///< the epochs count from 1, as here, whatever the run counted from
  EpochCurve test_accuracies;      ///< only of epochs for which it is known
  std::filesystem::path weights;   ///< weights.safetensors; empty if the run has no folder
  std::optional<double> accuracy;  ///< after the last epoch
  std::optional<double> test_accuracy;
  bool comparable = true;  ///< with the baseline
};

struct Comparison {
  std::vector<RunSummary> runs;
  bool are_plans = false;              ///< then `seconds` are those of a step
  std::vector<std::size_t> baselines;  ///< indices in `runs`, ascending
  std::vector<std::string> reasons;    ///< why runs are not comparable, one line each
  std::vector<std::string> notes;      ///< what could not be checked

  /// Returns the index of the run that runs[i] is compared with: the last baseline up to i, or the first one of all.
  std::size_t baseline_of(std::size_t i) const;
};

/// Compares each run with its baseline. `baselines` are indices in `runs`, ascending, at least one. Throws UsageError
/// if some are plans and others are not.
Comparison compare(const std::vector<RunRecord>& runs, const std::vector<std::size_t>& baselines);

/// The plain form leaves out columns that are unknown for all runs, then others until the table fits kTableWidth, and
/// says which. The Markdown form is for docs/measurements.
enum class TableForm { plain, wide, markdown };

inline constexpr std::size_t kTableWidth = 100;

/// Returns a table with a heading and one row per run, followed by the meaning of the columns. Unknown values are "-".
std::string comparison_table(const Comparison& comparison, TableForm form);

/// Returns a self-contained SVG figure. The upper part has one row per run: its epoch time, speed-up and idle share as
/// bars, with outlines for the predicted time, the ideal speed-up and the predicted idle share, and the peak memory of
/// each rank. The lower part shows the training loss and the test accuracy over the epochs. Runs whose losses coincide
/// share a colour and a curve, and the legend says whether their weights are identical bytes. Throws UsageError for
/// plans, which have neither.
std::string plot_svg(const Comparison& comparison);

}  // namespace stagecoach
