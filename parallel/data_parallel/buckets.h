#pragma once
/// @file
/// Buckets: gradients that are reduced together, in one piece of memory. One message for many small gradients pays the
/// link's latency once, and a full bucket travels while the backward still makes the gradients of the next one.
///
/// buckets.cpp shows the mechanism in the order in which it happens: parameters are assigned to buckets, a gradient
/// arrives, a bucket is full and leaves, and the step waits for the sums.
/// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020, section 3.2.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "nn/named_tensors.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/comm/communicator.h"

namespace stagecoach {

/// Bytes at which a bucket is closed. The first one is small: it is full early, and the link has work early.
struct BucketCaps {
  std::size_t first = std::size_t{1} << 20;
  std::size_t rest = std::size_t{25} << 20;
};

/// Indices into a list of parameters, bucket by bucket.
using BucketLayout = std::vector<std::vector<std::size_t>>;

/// Assigns `parameters` to buckets in the order of `order`, which holds each index once. A bucket is closed by the
/// tensor that reaches the cap, so it may be larger than that, and holds one type of elements only.
BucketLayout bucket_layout(const NamedTensors& parameters, const std::vector<std::size_t>& order,
                           const BucketCaps& caps);

/// The order in which gradients are likely to come: the last parameter first.
std::vector<std::size_t> reverse_order(std::size_t count);

struct Bucket {
  int index = 0;
  Tensor flat = {};                     ///< [n]: all gradients, without gaps
  std::vector<std::string> names = {};  ///< of the parameters
  std::vector<Tensor> gradients = {};   ///< views of `flat`, each of its parameter's shape
};

/// Replaces a bucket's values by their sum over all ranks of `comm`, or by an approximation of it. All ranks get the
/// same bytes. It runs on the thread of CommThread, not on the rank's own.
using ReduceBucket = std::function<void(Bucket& bucket, Communicator& comm)>;

/// The buckets of one rank. All ranks make theirs alike and fill them in any order.
class Buckets {
 public:
  /// `comm` must outlive it. The layout is that of reverse_order.
  Buckets(NamedTensors parameters, Communicator& comm, const BucketCaps& caps, ReduceBucket reduce);

  /// Assigns the parameters anew. Gradients that are there already move into the new buckets.
  void lay_out(const std::vector<std::size_t>& order);
  /// A step begins: no gradient is ready.
  void start();
  /// The parameter has a gradient: from now on it is a view of its bucket.
  void take_gradient(std::size_t parameter);
  /// Nothing more is added to its gradient in this step; without one it counts as zeros. The last one of a bucket sends
  /// it off.
  void mark_ready(std::size_t parameter);
  bool is_ready(std::size_t parameter) const { return slots_[parameter].ready; }
  /// Whether a bucket has left and was not waited for.
  bool is_reducing() const { return !launched_.empty(); }
  /// Waits for all sums. Returns from when to when each bucket was reduced: from full, or the end of the one before.
  std::vector<CommThread::Span> wait();
  /// The view that holds the parameter's gradient, and after wait() its sum.
  Tensor gradient(std::size_t parameter) const;

  const std::vector<Bucket>& all() const { return buckets_; }
  /// The thread on which buckets are reduced.
  CommThread& comm_thread() { return comm_thread_; }

 private:
  /// Where a parameter's gradient is.
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
  std::vector<std::size_t> missing_;           // gradients that are not ready, one number per bucket
  std::vector<CommThread::Pending> launched_;  // one per bucket that has left, in their order
  CommThread comm_thread_;                     // ends first: its thread works on buckets
};

}  // namespace stagecoach
