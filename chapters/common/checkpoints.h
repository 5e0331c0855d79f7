#pragma once
/// @file
/// The checkpoints of a run. Each is a folder `epoch-E-step-S` with one file per rank, its shard, and a manifest that
/// names them. The manifest is written last, when all shards are on the disk: a checkpoint without one was never
/// finished, and the one before it counts. Anything else in these folders, or beside them under any other name, is the
/// user's: it is neither read nor removed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "chapters/common/training_state.h"

namespace stagecoach {

/// The progress of a run: what is done, and the sums of the epoch in progress.
struct Progress {
  std::int64_t epoch = 1;  ///< the one in progress
  std::int64_t step = 0;   ///< steps of it that are done
  double loss_sum = 0;     ///< over its images
  std::int64_t correct = 0;
  std::int64_t seen = 0;
  std::vector<std::int64_t> peak_bytes = {};  ///< per rank
  double seconds = 0;                         ///< of the epoch so far, on rank 0
  double rank_seconds = 0;  ///< the sum over all ranks, also when a run was resumed with another number of ranks
  double waited = 0;        ///< of rank_seconds, those in which ranks waited for data or for each other
};

/// The checkpoints in one folder, which need not exist. It has no lock: all ranks of a run may write their shards at
/// once, and rank 0 does the rest.
class Checkpoints {
 public:
  /// `training` is the settings of the training as text: a checkpoint fits the same training only (trains_alike).
  Checkpoints(std::filesystem::path folder, std::string training)
      : folder_(std::move(folder)), training_(std::move(training)) {}

  /// Removes the temporary files that killed programs left. Throws DataError.
  void remove_abandoned() const;

  // Writing one, in this order. All throw DataError when writing fails.
  /// Rank 0 makes an empty folder for it. An older checkpoint of the same name is none from then on.
  void begin(const Progress& progress) const;
  /// Each rank that holds a part of the state writes its shard, after rank 0 has called begin().
  void write_shard(const Progress& progress, int rank, const TrainingState& part) const;
  /// Rank 0 completes the checkpoint, after all shards of `ranks` are written. Of the older ones only the last is kept.
  void commit(const Progress& progress, const std::vector<int>& ranks) const;

  // Reading one.
  struct Found {
    Progress progress;
    StateContents contents;            ///< of the whole model
    TrainingState state;               ///< the tensors that were asked for
    std::vector<std::string> skipped;  ///< why newer checkpoints were not taken
  };
  /// Returns why a state does not fit the training; empty if it does.
  using Misfit = std::function<std::string(const StateContents& state)>;
  /// Returns the newest that is complete, of the same training, and without a misfit. If there is none, throws
  /// DataError that says what is wrong with each. Everything is verified; only `part` of it is kept in memory.
  Found newest(const Misfit& misfit = {}, const StatePart& part = {}) const;
  /// Returns the one of that epoch and step. Throws DataError when it is not complete.
  Found at(std::int64_t epoch, std::int64_t step, const StatePart& part = {}) const;

 private:
  std::filesystem::path folder_of(std::int64_t epoch, std::int64_t step) const;
  std::filesystem::path folder_of(const Progress& progress) const { return folder_of(progress.epoch, progress.step); }
  Found read(const std::filesystem::path& checkpoint, const StatePart& part) const;
  /// Returns the folders of all checkpoints, also of unfinished ones, the newest first.
  std::vector<std::filesystem::path> all() const;

  std::filesystem::path folder_;
  std::string training_;
};

}  // namespace stagecoach
