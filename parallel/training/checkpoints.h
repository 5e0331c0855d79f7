#pragma once
/// @file
/// The checkpoints of a run. Each is a folder `epoch-E-step-S` with one file per rank, its shard, and a manifest that
/// names them. The manifest is written last, when all shards are on the disk: a checkpoint without a manifest is
/// incomplete, and the one before it is used. Any other file in these folders, or next to them, belongs to the user: it
/// is neither read nor removed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "datasets/fingerprint.h"
#include "parallel/training/training_state.h"

namespace stagecoach {

/// The progress of a run: completed work, and the sums of the epoch in progress.
struct Progress {
  std::int64_t epoch = 1;  ///< the epoch in progress
  std::int64_t step = 0;   ///< completed steps of the epoch
  double loss_sum = 0;     ///< over the images seen in the epoch
  std::int64_t correct = 0;
  std::int64_t seen = 0;
  std::vector<std::int64_t> peak_bytes = {};  ///< per rank
  double seconds = 0;                         ///< of the epoch so far, on rank 0
  double rank_seconds = 0;  ///< summed over all ranks, even if the run was resumed with a different number of them
  double waited = 0;        ///< the part of rank_seconds in which ranks waited for data or for each other
};

/// The checkpoints in one folder, which need not exist. There is no lock: all ranks of a run may write their shards
/// concurrently, and rank 0 does the rest.
class Checkpoints {
 public:
  /// `training` has the settings of the training as text (RunOptions::training). Only checkpoints of the same training
  /// are accepted (trains_alike). The manifest of a new checkpoint also has the fingerprint of `data`, and `parts`.
  Checkpoints(std::filesystem::path folder, std::string training, std::optional<Fingerprint> data = {},
              std::optional<BatchParts> parts = {})
      : folder_(std::move(folder)), training_(std::move(training)), data_(std::move(data)), parts_(parts) {}

  /// Removes the temporary files that killed programs left. Throws DataError if that fails.
  void remove_abandoned() const;

  // Writing a checkpoint, in this order. All throw DataError if writing fails.
  /// Called by rank 0: creates an empty folder for the checkpoint. An older checkpoint of the same name is invalid from
  /// then on.
  void begin(const Progress& progress) const;
  /// Called by each rank that holds part of the state, after rank 0 has called begin(): writes the rank's shard.
  void write_shard(const Progress& progress, int rank, const TrainingState& part) const;
  /// Called by rank 0 after all shards of `ranks` are written: completes the checkpoint. Of the older ones, only the
  /// newest is kept.
  void commit(const Progress& progress, const std::set<int>& ranks) const;

  // Reading a checkpoint.
  struct Found {
    Progress progress = {};
    StateContents contents = {};            ///< of the whole model
    TrainingState state = {};               ///< the requested tensors
    std::optional<Fingerprint> data = {};   ///< of its training; empty if an older version wrote it
    std::optional<BatchParts> parts = {};   ///< of its batches; empty if they were not known
    std::vector<std::string> skipped = {};  ///< the reasons why newer checkpoints were not used
  };
  using RequireData = std::function<void(const std::optional<Fingerprint>& saved)>;
  /// Returns the newest checkpoint that is complete, belongs to the same training, and has the outline `expected`, if
  /// that is given. If there is none, throws DataError, which says what is wrong with each. All data is verified, but
  /// only `part` is kept in memory. `require_data` may throw OtherData, which is not caught here.
  Found newest(const StateOutline* expected = nullptr, const StatePart& part = {},
               const RequireData& require_data = {}) const;
  /// Returns the checkpoint of that epoch and step. Throws DataError if it is not complete.
  Found at(std::int64_t epoch, std::int64_t step, const StatePart& part = {}) const;

 private:
  std::filesystem::path folder_of(std::int64_t epoch, std::int64_t step) const;
  std::filesystem::path folder_of(const Progress& progress) const { return folder_of(progress.epoch, progress.step); }
  Found read(const std::filesystem::path& checkpoint, const StatePart& part) const;
  /// Returns the folders of all checkpoints, including incomplete ones, the newest first.
  std::vector<std::filesystem::path> all() const;

  std::filesystem::path folder_;
  std::string training_;
  std::optional<Fingerprint> data_;
  std::optional<BatchParts> parts_;
};

}  // namespace stagecoach
