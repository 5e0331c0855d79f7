#pragma once
/// @file
/// The --out folder of a run: config.json, metrics.jsonl, trace.json, weights.safetensors, and the checkpoints from
/// which
/// --resume goes on. A file is written under a temporary name and renamed when it is whole, so that the older one stays
/// whatever happens.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/checkpoints.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/folder_lock.h"
#include "chapters/common/settings.h"
#include "chapters/common/training_state.h"

namespace stagecoach {

/// One rank's. Rank 0 writes the files of the run; each rank that holds some of the training's state writes its shard
/// of a checkpoint.
class RunFolder {
 public:
  /// Makes the folder, and writes nothing to it yet. Without --out every call does nothing. Throws DataError when the
  /// folder cannot be made.
  RunFolder(const Settings& settings, int rank);

  bool writes() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }

  /// The checkpoints of the run that --resume names. Reading them writes nothing.
  Checkpoints resumed() const;
  /// Keeps other runs out of the folder. Called before anything is read, since that may be in the folder too. Throws
  /// UsageError when another run writes there.
  void lock();
  /// Begins to write to the locked folder: removes what killed programs left half-written, moves the files of an
  /// earlier run to `earlier-1` (or -2, …) in the folder, and writes the settings and, for a resumed run, the metrics
  /// of the epochs before `progress`.
  void begin(const Progress& progress);

  /// Saves the run at `next`, where it is to go on: the shards of the ranks in `layers`, the weights, the line of
  /// metrics after a finished epoch, and the checkpoint. All ranks call it together, each with its own model and
  /// optimizer, and with what its compression keeps (as in TrainingState); if it keeps something, all ranks write a
  /// shard. A folder that was removed or replaced since is made again, complete. Throws DataError when another run has
  /// taken its place.
  void save(Communicator& comm, const LayerRanks& layers, const Progress& next, const Module& model,
            const Optimizer& optimizer, const std::optional<NamedTensors>& memory, const EpochResult* result = nullptr);
  /// Reads back what was saved last, as --resume would. Throws DataError unless it would go on at `progress`.
  void require_resumable(const Progress& progress, const Checkpoints::Misfit& misfit) const;
  void save_trace(const std::string& json);

 private:
  bool is_writer() const { return writes() && rank_ == 0; }
  Checkpoints checkpoints() const;
  bool has_settings() const;
  /// Called before anything is written: makes sure that the folder exists, is locked, and has the run's config.json.
  void hold_folder();

  Settings settings_;
  int rank_;
  std::filesystem::path folder_;
  std::filesystem::path resumed_;
  FolderLock lock_;
  std::string metrics_;  // all lines so far: the file is always written whole, so that it is never cut off
};

/// Makes the --out folder if it does not exist. Throws DataError with the reason if that fails.
std::filesystem::path make_folder(const std::string& out);

/// Returns the settings of the run in `folder`, which `chapter` made. Throws as settings_from_json does, and DataError
/// if there is no such run.
Settings read_settings(const std::filesystem::path& folder, const Chapter& chapter);

/// Returns the bytes of a file. Throws DataError, which ends with `advice`, when it cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& advice);
/// Writes `text` as a whole file or not at all (core/atomic_file.h).
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stagecoach
