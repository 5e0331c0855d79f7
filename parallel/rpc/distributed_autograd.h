#pragma once
/// @file
/// Distributed autograd: a backward through modules on several workers, and an optimizer that steps their parameters
/// where they are.
///
///     DistributedOptimizer optimizer(master, "sgd", parameters);   // once
///     DistributedContext context(master);                          // per step
///     Tensor y = back.forward(front.forward(x)).to_here();
///     context.backward(cross_entropy(y, labels));
///     optimizer.step(context);
///
/// Source of the interface: torch.distributed.autograd.context and torch.distributed.optim.DistributedOptimizer.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/rpc/master.h"

namespace stagecoach {

/// Records the calls of modules from its construction on, for one backward. The gradients of parameters are collected
/// on each worker under this context, not in the parameters, so that contexts do not disturb each other. At most one
/// context exists at a time.
class DistributedContext {
 public:
  /// Throws Error if the master has a context already.
  explicit DistributedContext(Master& master);
  /// The workers forget its gradients.
  ~DistributedContext();
  DistributedContext(const DistributedContext&) = delete;
  DistributedContext& operator=(const DistributedContext&) = delete;

  /// Runs the backward from `loss`, which the master has computed from outputs that it fetched, through all workers,
  /// and waits for them. The gradients of outputs are processed in the order of the forwards, so sums over
  /// micro-batches are those of one device that accumulates them in this order. `grad` is the gradient of the loss; 1
  /// if omitted. Call it once. Throws Error if the output of a module was used by more than one other module or both
  /// used and fetched, RemoteError if a call threw on a worker.
  void backward(const Tensor& loss, const Tensor& grad = {});

 private:
  friend class Future;
  friend class Master;
  friend class RemoteModule;
  friend class DistributedOptimizer;
  struct Call {
    RRef output;
    RRef input;         // on the same worker
    int producer;       // the call whose output was the input; -1: a tensor of the master
    Tensor fetched;     // the output on the master, if it was fetched
    int consumers = 0;  // calls that used the output
  };
  /// Records a call. `input` is the same as `x`, on the worker of the output. Returns whether the backward needs the
  /// gradient of the input.
  bool record(const RRef& output, const RRef& input, const RRef& x);
  /// Makes a fetched output a leaf that collects a gradient.
  void note_fetched(rpc::Id id, Tensor& tensor);
  int call_of(rpc::Id output) const;
  const Call* producer_of(const Call& call) const;
  bool has_gradient(const Call& call) const { return call.fetched.defined() && call.fetched.grad().defined(); }
  /// Throws Error unless each output on the way from `last` to the first module was used once.
  void require_used_once(const Call& last) const;
  /// Waits until the workers have done all calls. Throws RemoteError if one threw.
  void check() const;

  Master& master_;
  rpc::Id id_;
  std::vector<Call> calls_;
  std::set<int> ranks_;  // workers that take part
  bool has_gradients_ = false;
};

/// Optimizers on the workers, each of the parameters that are there.
class DistributedOptimizer {
 public:
  /// Makes an optimizer by the factory of this name in the table on every worker that has some of the `parameters`.
  /// Waits for the workers. Throws RemoteError if there is no such factory, or if it throws.
  DistributedOptimizer(Master& master, const std::string& factory, const NamedRRefs& parameters);
  /// Makes a step on all workers at the same time, with the gradients of `context`, and waits for them. Throws
  /// RemoteError if a call of the context threw on any worker, and Error if its backward has not been done: then no
  /// worker makes a step.
  void step(const DistributedContext& context);

 private:
  Master& master_;
  std::vector<std::pair<int, rpc::Id>> optimizers_;  // ranks and ids
};

}  // namespace stagecoach
