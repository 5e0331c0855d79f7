#pragma once
/// @file
/// What a rank measures in an epoch: losses and correct predictions, time, waits and memory.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/tensor.h"
#include "nn/optimizer.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/rank_pool.h"
#include "parallel/training/checkpoints.h"
#include "parallel/training/epoch_log.h"

namespace stagecoach {

/// The sums over an epoch. They are on the device, because reading a number from a GPU means waiting for the GPU.
struct EpochSums {
  explicit EpochSums(Device device)
      : loss(Tensor::zeros({}, DType::float64, device)), correct(Tensor::zeros({}, DType::int32, device)) {}

  /// Adds a micro-batch: the sum of its losses [], and the number of labels [n, …] for which the logits
  /// [n, …, classes] are highest.
  void add(const Tensor& loss_sum, const Tensor& logits, const Tensor& labels) {
    has_losses = true;
    accumulate(loss_sum, loss);
    count_correct(logits, labels, correct);
  }
  /// Adds losses for which there are no labels to count, such as those of a regression (RunOptions::labels).
  void add_loss(double loss_sum) {
    has_losses = true;
    accumulate(Tensor::full({}, loss_sum, DType::float32, loss.device()), loss);
  }

  Tensor loss;              ///< [] float64, summed over the images seen
  Tensor correct;           ///< [] int32, how many of their labels were predicted
  bool has_losses = false;  ///< whether one was added: a test may count correct predictions only
};

class EpochMeter {
 public:
  /// `comm` has all ranks of the world. Measures the memory of `devices`, on which this rank works; if they are
  /// asynchronous, the rank is idle when they are, on average. Must be constructed before the model, since memory that
  /// was allocated earlier does not count. With a pool, its ranks work on the devices, and what they do and send
  /// counts.
  EpochMeter(Communicator& comm, const std::vector<Device>& devices, std::int64_t labels_per_sample = 1,
             std::shared_ptr<RankPool> pool = nullptr);
  ~EpochMeter() = default;
  EpochMeter(const EpochMeter&) = delete;
  EpochMeter& operator=(const EpochMeter&) = delete;

  const Progress& progress() const { return progress_; }
  /// Returns the sums that the training adds to, on the device. The tensors are the same in all epochs.
  EpochSums& train_sums() { return train_sums_; }
  EpochSums& test_sums() { return test_sums_; }

  /// Continues from a checkpoint. The sums over all ranks continue on rank 0 (times) and on rank `loss_rank` (losses
  /// and correct predictions).
  void resume(const Progress& saved, int loss_rank);
  void start_epoch();
  /// Times the updates of `optimizer`, which must outlive the training, if a call lasts as long as its work.
  void time_updates_of(Optimizer& optimizer);
  /// Returns the seconds that the rank, or in the mean its devices, have worked since an arbitrary moment.
  double worked() const { return comm_.clock().now() - idle_seconds(); }
  /// Starts counting time and waits, until the next add_time().
  void start_clock();
  void add_time();
  /// Adds what the next batch took: the increase of worked(), and a real wait for it, unless the clock is virtual: that
  /// clock does not advance during the wait. That of asynchronous devices shows in their own idle time. A wait on the
  /// modelled clock, which has counted it, is `modelled_seconds`; no schedule predicts it, so it is added to what is
  /// predicted.
  void add_load(double worked, double seconds, double modelled_seconds);
  void add_step(std::int64_t images);
  /// Ends the count of sent bytes, which began with the epoch: what follows is no training.
  void stop_counting_bytes();
  /// Reads the training sums from the device, which waits for the device.
  void read_sums();
  /// Returns the mean loss of the images seen so far.
  double mean_loss() const { return progress_.loss_sum / static_cast<double>(progress_.seen); }
  void start_test();
  void add_test_images(std::int64_t images) { test_images_ += images; }

  /// Sums what the ranks have measured, and records their peak memory and the bytes of each link. Afterwards progress()
  /// is that of all ranks, with the seconds of rank 0. All ranks call it.
  void combine_ranks();
  /// Returns the results of the epoch; called after combine_ranks(). Afterwards progress() is that of the next epoch.
  EpochResult finish_epoch(Prediction prediction);

 private:
  using Traffic = std::map<std::pair<int, int>, double>;
  /// Returns the bytes that this rank has sent to others so far, or that were copied between its devices.
  Traffic traffic() const;
  void find_links();
  /// Returns nothing if there are no labels.
  std::optional<double> accuracy_of(double correct, std::int64_t images) const;
  /// Returns the time in which the rank, or its devices, had nothing to do, since an arbitrary moment.
  double idle_seconds() const;
  /// Returns whether others work for this rank: asynchronous devices, or the ranks of a pool.
  bool has_others_work() const;
  /// Returns the parts of a step; called after combine_ranks(). Empty if not all of the epoch was measured.
  NamedNumbers parts_of_step(const Progress& done, const Prediction& prediction) const;

  struct Watched {
    Device device;
    std::int64_t held_before;  // bytes allocated before the run
  };
  Communicator& comm_;
  double labels_per_sample_;
  std::shared_ptr<RankPool> pool_;  // may be null
  std::vector<Watched> devices_;
  Progress progress_;
  EpochSums train_sums_;
  EpochSums test_sums_;
  std::int64_t test_images_ = 0;
  std::optional<double> test_accuracy_;  // over all ranks
  std::optional<double> test_loss_;
  double time_mark_ = 0;            // time up to here is in progress_.seconds
  double idle_mark_ = 0;            // idle time up to here is in progress_.waited
  double load_waited_ = 0;          // modelled, in this epoch
  Optimizer* optimizer_ = nullptr;  // whose updates are timed
  double updates_mark_ = 0;         // seconds of its updates before this epoch
  std::shared_ptr<const EpochMeter> self_{this,
                                          [](const EpochMeter*) {}};  // known to the optimizer, if it lives longer
  MeasuredTimes measured_;                                            // of this epoch; then of all ranks
  std::int64_t first_step_ = 0;                                       // of the epoch in this run
  // Bytes by sender and receiver; until the training ends, those that were sent before the epoch.
  Traffic sent_;
  std::vector<LinkBytes> links_;
};

}  // namespace stagecoach
