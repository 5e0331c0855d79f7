#pragma once
/// @file
/// Sums the gradients of ranks that each train the same model on a part of the batch, bucket by bucket, while the
/// backward that makes them goes on. The mechanism is in buckets.cpp; here is what surrounds it: which backward is the
/// last of a step, parameters that get no gradient, and the order in which gradients come.
///
///     reducer.begin(Reducer::Sync::yes, {&loss, 1});
///     backward(loss, share);   // a full bucket leaves at once
///     reducer.finish();        // now each gradient is the sum over all ranks
///     optimizer.step();
///     optimizer.zero_grad();
///
/// Sums, not means: each sample's share in the mean loss of the whole batch is in `share` already, so that ranks with
/// fewer samples weigh less. Sums are made in the order of the ranks: the result is, bit for bit, that of one device
/// that adds up the ranks' gradients one after the other.
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
  bool find_unused = false;  ///< look at each backward's graph for parameters that it will not reach
  ReduceBucket reduce = {};  ///< in place of the plain sum
};

class Reducer {
 public:
  /// Whether gradients are reduced at the end of a backward, or wait for the next one's.
  enum class Sync { no, yes };

  /// All ranks of `comm` make one together; both outlive it. A tensor that occurs twice counts once. Parameters that no
  /// rank trains now (requires_grad) stay out; one that only some train gets their sum on all. Takes the parameters'
  /// gradient hooks. Throws Error unless the ranks' parameters have the same names and shapes.
  Reducer(const NamedTensors& parameters, Communicator& comm, ReducerSettings settings = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// A backward from `outputs` will begin (or, with Sync::no, several); they are needed only to find unused parameters,
  /// and may be none on a rank that has nothing to do. After finish() the gradients must have been forgotten
  /// (zero_grad).
  void begin(Sync sync, std::span<const Tensor> outputs = {});
  /// In place of begin and a backward: reduces what backwards with Sync::no have left.
  void reduce_accumulated();
  /// The same for some parameters only, while others still get gradients: after begin(Sync::no), when the last
  /// gradients of `parameters` have come. finish() requires all parameters to
  /// be reduced. Throws Error unless begin(Sync::no) came before, and for a parameter that was reduced already.
  void reduce_accumulated(const NamedTensors& parameters);
  /// Waits for the reductions. Then all parameters have their sums as gradients; with find_unused those that no rank
  /// used have none. Throws Error that names the parameters for which no gradient came, unless it may be so.
  void finish();

  /// What the last backward with Sync::yes took, by the rank's clock.
  struct Times {
    double begin = 0;                          ///< of the backward
    double end = 0;                            ///< likewise
    std::vector<double> arrivals;              ///< seconds of work before each parameter's gradient, in their order
    std::vector<CommThread::Span> reductions;  ///< bucket by bucket: from full, or the end of the one before
  };
  const Times& times() const { return times_; }
  /// Those that are reduced, each once.
  const NamedTensors& parameters() const { return parameters_; }
  const std::vector<Bucket>& buckets() const { return buckets_.all(); }
  /// Whether the buckets are in the order in which gradients came in the first backward (on rank 0).
  bool is_rebuilt() const { return rebuilt_; }

 private:
  void rebuild();
  void start(Sync sync);
  void see_gradient(std::size_t parameter);
  void mark_ready(std::size_t parameter);
  void mark_unused(std::span<const Tensor> outputs);
  std::vector<float> sum_of_uses();
  void require_all_ready() const;

  Communicator& comm_;
  bool find_unused_;
  NamedTensors parameters_;
  Buckets buckets_;
  std::vector<float> used_;               // per parameter: 1 if it got a gradient since the last reduction
  std::vector<std::size_t> first_order_;  // in which gradients came in the first backward
  bool begun_ = false;
  bool rebuilt_ = false;
  bool reduced_ = false;         // the gradients are sums of the last step
  std::optional<Sync> running_;  // the backward that was announced
  Times times_;
  double work_begin_ = 0;  // of the backward, without waits
};

}  // namespace stagecoach
