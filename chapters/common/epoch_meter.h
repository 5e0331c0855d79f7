#pragma once
/// @file
/// What a rank measures in an epoch: losses and correct predictions, time, waits and memory.

#include <cstdint>

#include "chapters/common/checkpoints.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/epoch_sums.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

class EpochMeter {
 public:
  /// Memory that is allocated before does not count: make it before the model.
  explicit EpochMeter(Communicator& comm);

  const Progress& progress() const { return progress_; }
  /// Sums that the training adds to, on the device; they stay where they are for all epochs.
  EpochSums& train_sums() { return train_sums_; }
  EpochSums& test_sums() { return test_sums_; }

  /// Goes on from a checkpoint. Rank 0 and rank `loss_rank` go on with the sums over all ranks.
  void resume(const Progress& saved, int loss_rank);
  void start_epoch();
  /// Time and waits are counted from here until the next add_time().
  void start_clock();
  void add_time();
  /// A wait for data of so many seconds, where it counts: a virtual clock does not advance meanwhile.
  void add_load_wait(double seconds);
  void add_step(std::int64_t images);
  /// Reads the training sums from the device, and waits for it.
  void read_sums();
  bool loss_is_finite() const;
  /// The mean loss of the images seen so far.
  double mean_loss() const { return progress_.loss_sum / static_cast<double>(progress_.seen); }
  void start_test();
  void add_test_images(std::int64_t images) { test_images_ += images; }

  /// Adds up what the ranks have measured, and notes the peak of memory: then progress() is that of all ranks, with the
  /// seconds of rank 0. All ranks call it.
  void combine_ranks();
  /// The results of the epoch, after combine_ranks(). From then on progress() is the next epoch's.
  EpochResult finish_epoch(const Prediction& prediction);

 private:
  Communicator& comm_;
  Progress progress_;
  EpochSums train_sums_;
  EpochSums test_sums_;
  std::int64_t test_images_ = 0;
  double test_accuracy_ = 0;  // over all ranks
  std::int64_t held_before_;  // bytes allocated before the run
  double time_mark_ = 0;      // time up to here is in progress_.seconds
  double waited_mark_ = 0;    // waits up to here are in progress_.waited
};

}  // namespace stagecoach
