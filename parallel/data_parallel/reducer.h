#pragma once
/// @file
/// Sums the gradients of ranks that each train the same model on a part of the batch, bucket by bucket, while the
/// backward that computes them is still running. The mechanism is in buckets.cpp; the reducer adds what surrounds it:
/// which backward is the last of a step, parameters that get no gradient, and the order in which gradients are
/// computed.
///
///     reducer.begin(Reducer::Sync::yes, {&loss, 1});
///     backward(loss, share);   // the reduction of a full bucket starts at once
///     reducer.finish();        // now each gradient is the sum over all ranks
///     optimizer.step();
///     optimizer.zero_grad();
///
/// The reducer computes sums, not means: `share` already contains each sample's share in the mean loss of the whole
/// batch, so ranks with fewer samples weigh less. Sums are added in rank order, so the result is bit for bit that of
/// one device that adds up the ranks' gradients one after the other.
/// Source: Li et al., "PyTorch distributed: experiences on accelerating data parallel training", 2020.

#include <optional>
#include <span>
#include <vector>

#include "nn/named_tensors.h"
#include "parallel/comm/comm_thread.h"
#include "parallel/data_parallel/buckets.h"

namespace stagecoach {

struct ReducerSettings {
  BucketCaps caps = {};
  bool find_unused = false;  ///< search each backward's graph for parameters that it does not reach
  ReduceBucket reduce = {};  ///< replaces the plain sum
};

class Reducer {
 public:
  /// Whether the next backward's gradients are reduced, or are accumulated for a later backward.
  enum class Sync { no, yes };

  /// All ranks of `comm` construct it together. `parameters` and `comm` must outlive it. A tensor that occurs twice
  /// counts once. Parameters that no rank trains at this time (requires_grad) are excluded; a parameter that only some
  /// ranks train gets the sum of their gradients on all ranks. Sets the parameters' gradient hooks. Throws Error unless
  /// the ranks' parameters have the same names and shapes.
  Reducer(const NamedTensors& parameters, Communicator& comm, ReducerSettings settings = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Announces a backward from `outputs` (or, with Sync::no, several). The outputs are needed only to find unused
  /// parameters, and may be empty on a rank that has nothing to do. After a finish() the gradients must have been
  /// cleared (zero_grad).
  void begin(Sync sync, std::span<const Tensor> outputs = {});
  /// Reduces the gradients that backwards with Sync::no have accumulated in `parameters`. They must be complete, while
  /// those of other parameters may still change; from the second step on these are in other buckets. finish() requires
  /// all parameters to be reduced. Throws Error unless begin(Sync::no) has been called, and for a parameter that has
  /// already been reduced.
  void reduce_accumulated(const NamedTensors& parameters);
  /// Waits for the reductions. Afterwards the gradients of all parameters are the sums; with find_unused, parameters
  /// that no rank used have no gradient. Throws Error that names the parameters without a gradient, except for frozen
  /// ones and those that find_unused found.
  void finish();

  /// The times of the last backward with Sync::yes.
  struct Times {
    std::vector<double> arrivals;              ///< seconds of work before the gradient of each parameter
    std::vector<CommThread::Span> reductions;  ///< per bucket, on the rank's clock; see Buckets::wait
  };
  const Times& times() const { return times_; }
  /// Returns the parameters that are reduced, each once.
  const NamedTensors& parameters() const { return parameters_; }
  const std::vector<Bucket>& buckets() const { return buckets_.all(); }
  /// Returns whether the buckets follow the order in which rank 0 got its gradients in the first step.
  bool is_rebuilt() const { return rebuilt_; }

 private:
  void rebuild();
  void see_gradient(std::size_t parameter);
  void mark_ready(std::size_t parameter);
  void mark_unused(std::span<const Tensor> outputs);
  void require_all_ready() const;

  Communicator& comm_;
  bool find_unused_;
  NamedTensors parameters_;
  Buckets buckets_;
  std::vector<double> used_;              // per parameter: 1 if it got a gradient since the last reduction
  std::vector<std::size_t> first_order_;  // of gradients in the first step
  std::vector<int> parts_;                // per parameter: the call of reduce_accumulated in that step
  bool rebuilt_ = false;
  bool reduced_ = false;         // the gradients are sums of the last step
  std::optional<Sync> running_;  // the backward that was announced
  Times times_;
  double work_begin_ = 0;  // start of the backward, in time without waits
};

}  // namespace stagecoach
