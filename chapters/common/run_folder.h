#pragma once
/// @file
/// The --out folder of a run: config.json, metrics.jsonl, trace.json, weights.safetensors, and the checkpoints that
/// --resume continues from. A file is written under a temporary name and renamed when it is complete, so that a failed
/// write leaves the older file as it was.

#include <filesystem>
#include <optional>
#include <string>

#include "chapters/common/checkpoints.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/folder_lock.h"
#include "chapters/common/settings.h"
#include "chapters/common/training_state.h"
#include "datasets/fingerprint.h"

namespace stagecoach {

/// One rank's view of the folder. Rank 0 writes the files of the run; each rank that holds part of the training state
/// writes its shard of a checkpoint.
class RunFolder {
 public:
  /// Creates the folder, and writes nothing to it yet. Without --out, every call does nothing. Throws DataError if the
  /// folder cannot be created.
  RunFolder(const Settings& settings, int rank);

  bool writes() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }

  /// Returns the checkpoints of the run that --resume names. Reading them writes nothing.
  Checkpoints resumed() const;
  /// Keeps other runs from writing to the folder. Called before anything is read, since the run that --resume names may
  /// be in this folder too. Throws UsageError if another run is writing there.
  void lock();
  /// Sets the data of the training. The fingerprint is in each checkpoint that this rank commits.
  void set_data(const TrainTest& data);
  /// Returns the fingerprint of the data, if this rank commits checkpoints or chooses the one to resume.
  const std::optional<Fingerprint>& data() const { return data_; }
  /// Begins to write to the locked folder: removes incomplete files that killed programs left, moves the files of an
  /// earlier run to `earlier-1` (or -2, …) in the folder, and writes the settings, the text `profile` of profile.json
  /// unless it is empty, and, for a resumed run, the metrics of the epochs before `progress`.
  void begin(const Progress& progress, const std::string& profile = "");

  /// Saves the run, to be resumed at `next`: the shards of the ranks in `layers`, the weights, the line of metrics
  /// after a finished epoch, and the checkpoint. All ranks call it together, each with its own model. If the
  /// folder was removed or replaced in the meantime, it is created again with all files. Throws DataError if another
  /// run is writing to the new folder.
  void save(Communicator& comm, const LayerRanks& layers, const Progress& next, const WholeModel& model,
            const EpochResult* result = nullptr);
  /// Called by rank 0 after a finished epoch of a run that cannot be resumed: writes the weights and the line of
  /// metrics, and no checkpoint.
  void save_results(const WholeModel& model, const EpochResult& result);
  /// Reads the last checkpoint as --resume would. Throws DataError unless a resumed run would continue at `progress`.
  void require_resumable(const Progress& progress, const StateOutline* expected) const;
  /// Writes the trace, of which rank 0 has the text.
  void save_trace(const std::string& json);

 private:
  bool is_writer() const { return writes() && rank_ == 0; }
  Checkpoints checkpoints() const;
  bool has_settings() const;
  /// Writes the weights of a model that this rank has alone.
  void save_weights(const WholeModel& model) const;
  /// Called before each write: ensures that the folder exists, is locked, and contains the run's config.json.
  void hold_folder();

  Settings settings_;
  int rank_;
  std::filesystem::path folder_;
  std::filesystem::path resumed_;
  FolderLock lock_;
  std::optional<Fingerprint> data_;
  std::string metrics_;  // all lines so far: the file is always rewritten whole, so that it is never incomplete
};

/// Creates the --out folder if it does not exist. Throws DataError with the reason if that fails.
std::filesystem::path make_folder(const std::string& out);

/// Returns the settings of the run in `folder`, which must be a run of `chapter`. Throws as settings_from_json does,
/// and throws DataError if there is no such run.
Settings read_settings(const std::filesystem::path& folder, const Chapter& chapter);

/// Returns the bytes of a file. Throws DataError, whose text ends with `advice`, if it cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& advice);
/// Writes `text` as a whole file or not at all (core/base/atomic_file.h).
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stagecoach
