#pragma once
/// @file
/// What a run leaves behind: config.json, metrics.jsonl, trace.json, weights.safetensors, and the checkpoints from
/// which --resume goes on. Files appear under a temporary name and are renamed when they are whole, so that whatever
/// happens the older one stays.

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/checkpoints.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/settings.h"
#include "chapters/common/training_state.h"

namespace stagecoach {

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

/// Of one rank. Rank 0 writes the files of the run; each rank that holds some of the training's state writes its shard
/// of a checkpoint.
class RunFolder {
 public:
  /// Makes the folder, and writes nothing yet. Without --out every call does nothing. Throws DataError when the folder
  /// cannot be made.
  RunFolder(const Settings& settings, int rank);

  bool writes() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }

  /// Those of the run that --resume names. Reading them writes nothing.
  Checkpoints resumed() const;
  /// Begins to write: moves the files of an earlier run to `earlier-1` (or -2, …) in the folder, and writes the
  /// settings and, of a resumed run, the metrics of the epochs before `progress`. Throws UsageError when another run
  /// writes there.
  void begin(const Progress& progress);

  /// All of a run at `next`, where it is to go on: the shards of `layers`' holders, the weights, the line of metrics
  /// after a finished epoch, and the checkpoint. All ranks call it together, each with its own model and optimizer, and
  /// with what its compression keeps, as TrainingState has it: then all write a shard.
  void save(Communicator& comm, const LayerRanks& layers, const Progress& next, const Module& model,
            const Optimizer& optimizer, const std::optional<NamedTensors>& memory, const EpochResult* result = nullptr);
  void save_trace(const std::string& json);

 private:
  Settings settings_;
  int rank_;
  std::filesystem::path folder_;
  std::filesystem::path resumed_;
  FolderLock lock_;
  std::string metrics_;  // all lines so far: the file is rewritten whole, and so is never cut off
};

/// Makes the --out folder if it is not there. Throws DataError that says why it cannot be.
std::filesystem::path make_folder(const std::string& out);

/// The settings of the run in `folder`, which `chapter` made. Throws as settings_from_json, and DataError if there is
/// no such run.
Settings read_settings(const std::filesystem::path& folder, const Chapter& chapter);

/// The bytes of a file. Throws DataError, which ends with `advice`, when it cannot be read.
std::string read_text(const std::filesystem::path& path, const std::string& advice);
/// Writes `text` as a whole file or not at all (core/atomic_file.h).
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace stagecoach
