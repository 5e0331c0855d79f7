#pragma once
/// @file
/// What a run wrote down about itself, wherever it wrote it: an --out folder, a metrics.jsonl, or a text log.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

/// One finished epoch. What a log does not tell has no value.
struct EpochRecord {
  std::int64_t epoch = 0;
  double loss = 0;  ///< may be NaN or infinite
  double seconds = 0;
  std::optional<double> accuracy;
  std::optional<double> test_accuracy;
  std::optional<std::string> clock;  ///< "wall" or "virtual"
  std::optional<double> images_per_second;
  std::optional<double> idle;
  std::optional<double> ideal_idle;
  std::optional<double> predicted_idle;
  std::optional<double> predicted_seconds;
  std::vector<std::int64_t> peak_bytes;  ///< one a rank
  std::vector<std::int64_t> versions;    ///< of the weights, the most at once on each rank
};

struct RunRecord {
  std::string path;                             ///< as the user named it
  bool rounded = false;                         ///< a text log: its numbers have few digits
  std::map<std::string, std::string> settings;  ///< flags without dashes, and "program"; only those that are known
  std::vector<EpochRecord> epochs;              ///< in their order, each once, at least one
  std::filesystem::path weights;                ///< where the run's weights are, if it left any; empty for a text log

  /// The setting's value, if it is known.
  std::optional<std::string> setting(const std::string& name) const;
};

/// No run has more, and no log counts from less than 0.
inline bool is_epoch_number(std::int64_t epoch) { return epoch >= 0 && epoch <= 1'000'000'000; }

/// Adds an epoch. A run that was interrupted does its last epochs again: what it said before about this epoch and the
/// later ones no longer counts.
void add_epoch(RunRecord& run, EpochRecord epoch);

/// Reads the run at `path`. Throws DataError when there is none, when it is damaged, or when no epoch is finished.
RunRecord read_run(const std::string& path);

}  // namespace stagecoach
