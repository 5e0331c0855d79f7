#pragma once
/// @file
/// Buckets: gradients that are reduced together, in one contiguous piece of memory. One message for many small
/// gradients pays the link's latency once, and a full bucket is reduced while the backward still computes the gradients
/// of the next one.
///
/// buckets.cpp shows the mechanism in the order in which it happens: parameters are assigned to buckets, a gradient
/// arrives, a full bucket is reduced, and the step waits for the sums.
/// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020, section 3.2.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/named_tensors.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/link.h"

namespace stagecoach {

/// The size in bytes at which a bucket is closed. The first bucket is small, so that it is full early and communication
/// starts early.
struct BucketCaps {
  std::size_t first = std::size_t{1} << 20;
  std::size_t rest = std::size_t{25} << 20;
};

/// Indices into a list of parameters, bucket by bucket.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// Assigns `parameters` to buckets in the order of `order`, which holds each index once. The tensor that reaches the
/// cap closes the bucket, so a bucket may be larger than its cap. All tensors of a bucket have the same dtype, and the
/// same number in `parts`, unless that is empty: gradients of another part may be ready much later.
BucketLayout bucket_layout(const NamedTensors& parameters, const std::vector<std::size_t>& order,
                           const BucketCaps& caps, const std::vector<int>& parts = {});

/// Returns the seconds that a ring takes per bucket of gradients of these bytes, which arrive in this order: one after
/// the other, over `link`, in a group of `ranks` ranks.
double reduction_seconds(const std::vector<std::int64_t>& bytes, const BucketCaps& caps, const Link& link, int ranks);

/// Returns the order in which gradients are likely to be computed: the last parameter first.
std::vector<std::size_t> reverse_order(std::size_t count);

struct Bucket {
  int index = 0;
  Tensor flat = {};                     ///< [n]: all gradients, without gaps
  std::vector<std::string> names = {};  ///< of the parameters
  std::vector<Tensor> gradients = {};   ///< views of `flat`, each with its parameter's shape
};

/// Replaces a bucket's values by their sum over all ranks of `comm`, or by an approximation of it. All ranks get the
/// same bytes. Runs on the thread of CommThread, not on the rank's own thread.
using ReduceBucket = std::function<void(Bucket& bucket, Communicator& comm)>;

/// The buckets of one rank. All ranks construct them with the same arguments and may fill them in any order.
class Buckets {
 public:
  /// `comm` must outlive this object. The initial layout follows reverse_order.
  Buckets(NamedTensors parameters, Communicator& comm, const BucketCaps& caps, ReduceBucket reduce);

  /// Reassigns the parameters to buckets in this order (see bucket_layout). Existing gradients move into the new
  /// buckets.
  void lay_out(const std::vector<std::size_t>& order, const std::vector<int>& parts = {});
  /// Begins a step: marks all gradients as not ready.
  void start();
  /// Moves the parameter's gradient into its bucket; from now on the gradient is a view of the bucket.
  void take_gradient(std::size_t parameter);
  /// Marks the parameter's gradient as complete in this step; a missing gradient counts as zeros. The last one of a
  /// bucket starts the bucket's reduction.
  void mark_ready(std::size_t parameter);
  bool is_ready(std::size_t parameter) const { return slots_[parameter].ready; }
  /// Returns whether the reduction of a bucket was started and not yet waited for.
  bool is_reducing() const { return !launched_.empty(); }
  /// Waits for all reductions. Returns the time span of each, which begins when the bucket is full or when the previous
  /// reduction ends.
  std::vector<CommThread::Span> wait();
  /// Returns the view of the bucket that contains the parameter's gradient, and after wait() its sum.
  Tensor gradient(std::size_t parameter) const;

  const std::vector<Bucket>& all() const { return buckets_; }
  /// Returns the thread on which buckets are reduced.
  CommThread& comm_thread() { return comm_thread_; }

 private:
  /// The position of a parameter's gradient.
  struct Slot {
    std::size_t bucket = 0;
    std::size_t index = 0;  // in the bucket
    bool ready = false;
  };
  void launch_full_buckets();

  NamedTensors parameters_;
  BucketCaps caps_;
  ReduceBucket reduce_;
  std::vector<Slot> slots_;  // one per parameter
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> missing_;           // number of gradients that are not ready, per bucket
  std::vector<CommThread::Pending> launched_;  // one per bucket whose reduction was started, in order
  CommThread comm_thread_;                     // destroyed first: its thread works on the buckets
};

}  // namespace stagecoach
