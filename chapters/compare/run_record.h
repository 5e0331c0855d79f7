#pragma once
/// @file
/// Reads what a run recorded about itself, in an --out folder, a metrics.jsonl, or a text log.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach {

/// One finished epoch. Figures that a log does not contain have no value.
struct EpochRecord {
  std::int64_t epoch = 0;
  double loss = 0;  ///< may be NaN or infinite
  double seconds = 0;
  std::optional<double> accuracy = {};
  std::optional<double> test_accuracy = {};
  std::optional<std::string> clock = {};  ///< "wall", "virtual" or "modelled"
  std::optional<double> images_per_second = {};
  std::optional<double> idle = {};
  std::optional<double> ideal_idle = {};
  std::optional<double> predicted_idle = {};
  std::optional<double> predicted_seconds = {};
  std::vector<std::int64_t> peak_bytes = {};  ///< one per rank
  std::vector<std::int64_t> versions = {};    ///< peak number of weight versions, one per rank
  // What a report shows.
  std::optional<std::int64_t> steps = {};
  std::vector<std::array<double, 3>> links = {};           ///< from, to, bytes per step
  std::vector<std::int64_t> delays = {};                   ///< updates at most, one per stage
  std::map<std::string, double> step_parts = {};           ///< in seconds (parallel/training/step_causes.h)
  std::vector<std::map<std::string, double>> memory = {};  ///< predicted, in bytes, one per rank
  // Of a planned step.
  std::optional<double> link_bytes = {};       ///< over the busiest link in one direction
  std::optional<std::int64_t> staleness = {};  ///< updates at most
};

struct RunRecord {
  std::string path;                             ///< as the user named it
  bool is_plan = false;                         ///< of --explain: its one epoch is a step
  bool rounded = false;                         ///< from a text log, whose numbers have few digits
  std::map<std::string, std::string> settings;  ///< known flags, without dashes, "program", "command"
  std::vector<EpochRecord> epochs;              ///< in order, each once, at least one
  std::vector<std::string> notes;               ///< what was converted or left out when it was read
  std::filesystem::path weights;                ///< where the run saves its weights, if at all; empty for a text log

  /// Returns the setting's value, if it is known.
  std::optional<std::string> setting(const std::string& name) const;
};

/// Returns whether `epoch` is a valid epoch number.
inline bool is_epoch_number(std::int64_t epoch) { return epoch >= 0 && epoch <= 1'000'000'000; }

/// Returns whether `value` is a share of a whole.
inline bool is_share(double value) { return value >= 0 && value <= 1; }

/// Adds an epoch. A resumed run repeats its last epochs, so earlier records of this epoch and of later ones are
/// removed. Throws DataError, which names `where`, if only later ones are there: the lines are not in order.
void add_epoch(RunRecord& run, EpochRecord epoch, const std::string& where);

/// Converts the accuracies of one run, which were given without a unit, into shares, as some programs print shares
/// (0.26) and others percent (26): if they are above 1, they are percentages, and a note in `run` says so. Throws
/// DataError, which begins with `where`, if some are above 1 and others from there down to 0, which says nothing about
/// the unit of either, or if one is neither a share nor a percentage. NaN and 0 are the same in both.
void convert_percentages(const std::vector<double*>& accuracies, const std::string& where, RunRecord& run);

/// Reads the run at `path`, or the plan that --explain --out wrote there. Throws DataError if there is none, it is
/// damaged, or it has no finished epoch.
RunRecord read_run(const std::string& path);

// The parts of read_run.
/// Adds the epochs in `text`, a metrics.jsonl, to `run`. Other events and unknown keys are ignored. Throws DataError
/// that names `where` and the line if a line is damaged.
void read_metrics(const std::string& text, const std::string& where, RunRecord& run);
/// Reads the planned step in `text`, a prediction.json, into `run`. Throws DataError that names `where` if it is
/// damaged or an older version wrote it.
void read_plan(const std::string& text, const std::string& where, RunRecord& run);
/// Returns the settings in `text`, a config.json. Throws DataError that names `where` if the text is damaged.
std::map<std::string, std::string> read_config(const std::string& text, const std::string& where);
/// Adds the epochs in `text`, the printed output of a program, to `run`, and the settings if it contains our table of
/// them. Programs of other frameworks may print lines of the same form, and launchers and loggers may put text before
/// them (line_source.h); of several ranks, rank 0 is read. Other lines, progress bars and colours are ignored. Throws
/// DataError that names `where` and the line if an epoch line is damaged, or where it is unclear which lines count.
void read_text_log(const std::string& text, const std::string& where, RunRecord& run);

}  // namespace stagecoach
