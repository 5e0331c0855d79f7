#pragma once
/// @file
/// The checkpoints of a run. Each is a folder `epoch-E-step-S` with one file per rank, its shard, and a manifest that
/// names them. The manifest is written last, when all shards are on the disk: a checkpoint without one was never
/// finished, and the one before it counts. What else is in these folders, or beside them under any other name, is the
/// user's: it is neither read nor removed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

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
  double seconds = 0;                         ///< of the epoch so far, on rank 0
  double rank_seconds = 0;  ///< the same as the sum over all ranks, also of those of a run that was resumed with others
  double waited = 0;        ///< seconds of these in which ranks waited, for data or for each other
};

/// Those in one folder, which need not be there. Without a lock: of a run's ranks all may write their shards at once,
/// and rank 0 does the rest.
class Checkpoints {
 public:
  /// `training` is what the run trains, as text: a checkpoint is for the same training only (trains_alike).
  Checkpoints(std::filesystem::path folder, std::string training)
      : folder_(std::move(folder)), training_(std::move(training)) {}

  /// Removes the temporary files that killed programs left. Throws DataError.
  void remove_abandoned() const;

  // Writing one, in this order. All throw DataError when the disk does not take it.
  /// Rank 0 makes room. What stands there under the same name is no checkpoint from then on.
  void begin(const Progress& progress) const;
  /// Each rank that holds some of the state writes its part, when rank 0 has made room.
  void write_shard(const Progress& progress, int rank, const TrainingState& part) const;
  /// Rank 0 makes a checkpoint of it, when all shards of `ranks` are written. Of the others only the one before it
  /// stays.
  void commit(const Progress& progress, const std::vector<int>& ranks) const;

  // Reading one.
  struct Found {
    Progress progress;
    StateContents contents;            ///< of the whole model
    TrainingState state;               ///< those of its tensors that were to be kept
    std::vector<std::string> skipped;  ///< why newer ones were not taken
  };
  /// Says why a state is not that of the training; empty if it is.
  using Misfit = std::function<std::string(const StateContents& state)>;
  /// The newest that is whole, of the same training, and without a misfit. Throws DataError that says what is wrong
  /// with each when there is none. All of it is verified, and `part` of it kept.
  Found newest(const Misfit& misfit = {}, const StatePart& part = {}) const;
  /// The one of that epoch and step. Throws DataError when it is not whole.
  Found at(std::int64_t epoch, std::int64_t step, const StatePart& part = {}) const;

 private:
  std::filesystem::path place_of(std::int64_t epoch, std::int64_t step) const;
  std::filesystem::path place_of(const Progress& progress) const { return place_of(progress.epoch, progress.step); }
  Found read(const std::filesystem::path& place, const StatePart& part) const;
  /// The folders of checkpoints, also of unfinished ones, the newest first.
  std::vector<std::filesystem::path> places() const;

  std::filesystem::path folder_;
  std::string training_;
};

}  // namespace stagecoach
