#pragma once
/// @file
/// Distributed autograd: a backward through calls on several workers, and an optimizer that steps their parameters
/// where they are.
///
///     DistributedOptimizer optimizer(master, "sgd", parameters);   // once
///     DistributedContext context(master);                          // per step
///     Tensor y = back.rpc_sync("forward", front.remote("forward", x));
///     context.backward(cross_entropy(y, labels));
///     optimizer.step(context);
///
/// Source of the interface: torch.distributed.autograd.context and torch.distributed.optim.DistributedOptimizer.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/rpc/master.h"

namespace stagecoach {

/// Records calls, for one backward. The gradients of the workers' parameters are collected on each worker under this
/// context, not in the parameters, so that contexts do not disturb each other. Several contexts may exist: the newest
/// one records, or the one on which record_next() was called last. To a context, the outputs of another one are
/// constants, and so are parameters that are passed by reference.
class DistributedContext {
 public:
  /// Records from now on.
  explicit DistributedContext(Master& master);
  /// The workers forget its gradients. Then the context that recorded before it records again.
  ~DistributedContext();
  DistributedContext(const DistributedContext&) = delete;
  DistributedContext& operator=(const DistributedContext&) = delete;
  /// Records the calls from now on, in place of the context that does.
  void record_next();

  /// Runs the backward from `loss`, which the master has computed from outputs that it fetched, through all workers,
  /// and waits for them. `grad` is the gradient of the loss; 1 if omitted. Call it once.
  ///
  /// The parameters of the workers get their gradients under this context, and tensors of the master that were
  /// arguments get theirs as in any backward. Sums are those of one device, bit for bit: calls that are connected, such
  /// as those of one micro-batch, run in reverse, and the gradient of an output that several calls used goes from one
  /// of them to the next, which adds to it. Calls that are connected by the loss only, such as those of different
  /// micro-batches, run in the order of the forwards, as on one device that accumulates the micro-batches. Where the
  /// master itself uses a fetched output, or a tensor that it also passed to calls, these uses are added first if they
  /// are in the computation of the loss, and last otherwise.
  ///
  /// Throws RemoteError if a call threw on a worker, Error in a second call.
  void backward(const Tensor& loss, const Tensor& grad = {});

 private:
  friend class Future;
  friend class Master;
  friend class DistributedOptimizer;
  /// An argument whose gradient is needed: the output of an earlier call, or a tensor of the master.
  struct Input {
    int producer = -1;
    Tensor of_master = {};
  };
  struct RecordedCall {
    RRef output;
    std::vector<Input> inputs;
    Tensor fetched = {};            // the output on the master, if it was fetched
    std::optional<RRef> grad = {};  // the output's gradient from the calls that have run backward
  };
  /// A tensor of the master whose gradient is on a worker.
  struct Pending {
    Tensor tensor;
    RRef grad;
    rpc::Id last_user;     // the output of the last call that added to it
    int first_call;        // of the connected calls
    std::set<int> before;  // calls from whose outputs the master computed the tensor
  };

  /// Records a call, and returns the bits of Command::needs_grad.
  std::uint64_t record(const RRef& output, const std::vector<rpc::Argument>& arguments);
  /// Makes a fetched output a leaf that collects a gradient.
  void note_fetched(rpc::Id id, Tensor& tensor);
  RecordedCall& call(int index) { return calls_[static_cast<std::size_t>(index)]; }
  /// Returns the calls whose output an input is, or was computed from by the master.
  std::set<int> calls_before(const Input& input) const;
  /// Returns the calls that are connected with each other, by the first of them, last call first.
  std::map<int, std::vector<int>> connected_calls() const;
  /// Tells the worker of a call to run its backward, if the call has a gradient.
  void run_backward(int index, int first_call);
  /// Returns what the sum of the gradients of an input of `user` continues: those so far, if there are any. From now
  /// on, the sum is `next`.
  rpc::Value continue_sum(const RecordedCall& user, const Input& input, int first_call, const RRef& next);
  /// Returns the gradient that the master's own uses of a fetched output have left, if there is one, and clears it.
  static rpc::Value fetched_grad(const RecordedCall& call);
  rpc::Value on_rank(int rank, const RRef& value);
  /// Waits for gradients of the master's tensors, and runs the backward from there.
  void settle(const std::vector<Pending>& arriving);
  /// Waits until the workers have done all calls. Throws RemoteError if one threw.
  void check() const;

  Master& master_;
  rpc::Id id_;
  std::vector<RecordedCall> calls_;
  std::map<rpc::Id, int> call_of_;           // by output
  std::map<const void*, int> call_of_leaf_;  // by Tensor::id of the output on the master
  std::set<int> ranks_;                      // workers that take part
  std::vector<Pending> pending_;
  std::vector<RRef> used_;  // by the next command
  std::vector<std::pair<int, rpc::Answer>> answers_;
  bool has_gradients_ = false;
};

/// Optimizers on the workers, each of the parameters that are there.
class DistributedOptimizer {
 public:
  /// Makes an optimizer by the factory of this name in the table on every worker that has some of the `parameters`,
  /// which are its first argument. Waits for the workers. Throws RemoteError if there is no such factory, or if it
  /// throws.
  template <class... Arguments>
  DistributedOptimizer(Master& master, const std::string& factory, const NamedRRefs& parameters,
                       const Arguments&... arguments)
      : master_(master) {
    make(factory, parameters, rpc::arguments_of(arguments...));
  }
  /// Makes a step on all workers at the same time, with the gradients of `context`, and waits for them. Throws
  /// RemoteError if a call of the context threw on any worker, and Error if its backward has not been done: then no
  /// worker makes a step.
  void step(const DistributedContext& context);

 private:
  void make(const std::string& factory, const NamedRRefs& parameters, const std::vector<rpc::Argument>& arguments);

  Master& master_;
  std::vector<RRef> optimizers_;
};

}  // namespace stagecoach
