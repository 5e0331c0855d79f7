#pragma once
/// @file
/// The folder of a run: config.json, metrics.jsonl, trace.json, weights.safetensors, and the checkpoints that
/// a run can be continued from. A file is written under a temporary name and renamed when it is complete, so that a
/// failed write leaves the older file as it was.

#include <filesystem>
#include <optional>
#include <string>

#include "datasets/fingerprint.h"
#include "parallel/training/checkpoints.h"
#include "parallel/training/epoch_log.h"
#include "parallel/training/folder_lock.h"
#include "parallel/training/run_options.h"
#include "parallel/training/training_state.h"

namespace stagecoach {

/// One rank's view of the folder. Rank 0 writes the files of the run; each rank that holds part of the training state
/// writes its shard of a checkpoint.
class RunFolder {
 public:
  /// Creates the folder `options.out`, and writes nothing to it yet. Without one, every call does nothing. Throws
  /// DataError if the folder cannot be created.
  RunFolder(const RunOptions& options, int rank);

  bool writes() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }

  /// Returns the checkpoints of the run to continue. Reading them writes nothing.
  Checkpoints resumed() const;
  /// Keeps other runs from writing to the folder. Called before anything is read, since the run to continue may be in
  /// this folder too. Throws UsageError if another run is writing there.
  void lock();
  /// Sets the data of the training. The fingerprint is in each checkpoint that this rank commits.
  void set_data(const TrainTest& data);
  /// Sets the parts of a batch. Each checkpoint that this rank commits has them, too.
  void set_parts(const std::optional<BatchParts>& parts) { parts_ = parts; }
  /// Returns the fingerprint of the data, if this rank commits checkpoints or chooses the one to resume.
  const std::optional<Fingerprint>& data() const { return data_; }
  /// Begins to write to the locked folder: removes incomplete files that killed programs left, moves the files of an
  /// earlier run to `earlier-1` (or -2, …) in the folder, and writes config.json, the text `profile` of profile.json
  /// unless it is empty, and, for a resumed run, the metrics of the epochs before `progress`. Throws DataError, and
  /// writes nothing, if a line of these metrics is damaged.
  void begin(const Progress& progress, const std::string& profile = "");

  /// Saves the run, to be resumed at `next`: the shards of the ranks in `layers`, the weights, the line of metrics
  /// after a finished epoch, and the checkpoint. All ranks call it together, each with its own model. If the
  /// folder was removed or replaced in the meantime, it is created again with all files. Throws DataError if another
  /// run is writing to the new folder.
  void save(Communicator& comm, const LayerRanks& layers, const Progress& next, const WholeLayers& model,
            const EpochResult* result = nullptr);
  /// Called by rank 0 after a finished epoch of a run that cannot be resumed: writes the weights and the line of
  /// metrics, and no checkpoint.
  void save_results(const WholeLayers& model, const EpochResult& result);
  /// Reads the last checkpoint as a resumed run would. Throws DataError unless a resumed run would continue at
  /// `progress`.
  void require_resumable(const Progress& progress, const StateOutline* expected) const;
  /// Writes the trace, of which rank 0 has the text.
  void save_trace(const std::string& json);

 private:
  bool is_writer() const { return writes() && rank_ == 0; }
  Checkpoints checkpoints() const;
  bool has_config() const;
  /// Writes the weights of a model that this rank has alone.
  void save_weights(const WholeLayers& model) const;
  /// Called before each write: ensures that the folder exists, is locked, and contains the run's config.json.
  void ensure_folder();

  RunOptions options_;
  int rank_;
  std::filesystem::path folder_;
  std::filesystem::path resumed_;
  FolderLock lock_;
  std::optional<Fingerprint> data_;
  std::optional<BatchParts> parts_;
  std::string metrics_;  // all lines so far: the file is always rewritten whole, so that it is never incomplete
};

/// Creates the folder `out` if it does not exist. Throws DataError with the reason if that fails.
std::filesystem::path make_folder(const std::string& out);

}  // namespace stagecoach
