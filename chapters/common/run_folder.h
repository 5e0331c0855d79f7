#pragma once
/// @file
/// What a run leaves behind: config.json, metrics.jsonl, trace.json, weights.safetensors, and the checkpoint from
/// which --resume goes on. Files appear under a temporary name and are renamed when they are whole, so that whatever
/// happens the older one stays.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/epoch_log.h"
#include "chapters/common/settings.h"
#include "chapters/common/training_state.h"

namespace stagecoach {

/// Where a run stands: what is done, and the sums of the epoch in progress.
struct Progress {
  std::int64_t epoch = 1;  ///< the one in progress
  std::int64_t step = 0;   ///< steps of it that are done
  double loss_sum = 0;     ///< over its pictures
  std::int64_t correct = 0;
  std::int64_t seen = 0;
  std::vector<std::int64_t> peak_bytes = {};  ///< a rank
  double seconds = 0;
  double waited = 0;  ///< seconds in which ranks waited, for data or for each other: the sum over them
};

/// Keeps other runs out of a folder while it lives.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Throws UsageError when another run holds the folder.
  void take(const std::filesystem::path& folder);

 private:
  int descriptor_ = -1;
};

class RunFolder {
 public:
  /// Makes the folder, and writes nothing yet. Without --out every call does nothing. Throws DataError when the folder
  /// cannot be made.
  explicit RunFolder(const Settings& settings);

  bool writes() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }

  /// Reads the checkpoint of the run that --resume names; writes nothing. Throws DataError if it is damaged or of
  /// another training.
  std::pair<Progress, TrainingState> resume() const;
  /// Its path, for errors.
  std::string checkpoint_path() const;
  /// Begins to write: moves the files of an earlier run to `earlier-1` (or -2, …) in the folder, and writes the
  /// settings and, of a resumed run, the metrics of the epochs before `progress`. Throws UsageError when another run
  /// writes there.
  void begin(const Progress& progress);

  /// Weights, checkpoint and the line of metrics, after a finished epoch; `next` is where to go on.
  void save_epoch(const EpochResult& result, const Progress& next, const TrainingState& state);
  /// Weights and checkpoint within an epoch.
  void save_interrupted(const Progress& progress, const TrainingState& state);
  void save_trace(const std::string& json);

 private:
  void save_state(const Progress& progress, const TrainingState& state);

  Settings settings_;
  std::filesystem::path folder_;
  std::filesystem::path resumed_;
  FolderLock lock_;
  std::string metrics_;  // all lines so far: the file is rewritten whole, and so is never cut off
};

/// Makes the --out folder if it is not there. Throws DataError that says why it cannot be.
std::filesystem::path make_folder(const std::string& out);

/// The settings of the run in `folder`. Throws DataError if there is none.
Settings read_settings(const std::filesystem::path& folder);

/// The bytes of a file. Throws DataError, which ends with `advice`, when it cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& advice);
/// Writes `text` as a whole file or not at all (core/atomic_file.h).
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stagecoach
