#pragma once
/// @file
/// Remote calls: rank 0 is the master, which places modules on the other ranks and calls them there. The workers are
/// passive (see worker.h): only the master's program says what happens.
///
///     const RemoteTable table{.modules = {{"front", make_front}, {"back", make_back}}};
///     run_with_master(world, table, [&](Master& master) {
///       RemoteModule front = master.remote(1, "front");
///       RemoteModule back = master.remote(2, "back");
///       Tensor y = back.forward(front.forward(x)).to_here();
///     });
///
/// | here                           | PyTorch                                                        |
/// |--------------------------------|----------------------------------------------------------------|
/// | `master.remote(1, "front")`    | `rpc.remote("worker1", Front)`                                 |
/// | `front.forward(x)`             | `front.remote().forward(x)`: returns an RRef at once           |
/// | `front.forward(x).fetch()`     | `front.rpc_async().forward(x)`: a future                       |
/// | `front.forward(x).to_here()`   | `front.rpc_sync().forward(x)`                                  |
/// | `master.rpc_sync(1, "f", {x})` | `rpc.rpc_sync("worker1", f, args=(x,))`, likewise `rpc_async`  |
/// | `front.named_parameters()`     | `[RRef(p) for p in front.parameters()]`, here with names       |
///
/// A call does not wait for the worker. Workers do their commands in order, so two workers that are called in turn for
/// several micro-batches form a pipeline. A value that one worker needs from another goes there directly.
///
/// Errors: what a call throws on a worker is kept in place of its result, and thrown as RemoteError where a value is
/// waited for; the worker goes on. A rank that dies, or shows no sign of life for the timeout of the world, ends all
/// ranks with CommError. Workers show signs of life by a thread of their own (heartbeat.h), so a command may take
/// longer than the timeout, and one that never ends is waited for. The master shows them only while it calls or waits:
/// if its own program does neither for so long, give the world a longer timeout. Source of the interface:
/// torch.distributed.rpc.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/launch/launch.h"
#include "parallel/rpc/connection.h"
#include "parallel/rpc/remote_table.h"

namespace stagecoach {

class DistributedContext;
class Master;

/// A call threw on a worker. The text names the rank and the call.
class RemoteError : public CommError {
 public:
  using CommError::CommError;
};

/// A tensor that a worker sends to the master. For use within the master's program.
class Future {
 public:
  /// Waits for the tensor, and returns it on the master's device. In the DistributedContext in which it was asked for,
  /// the output of a module is a leaf that collects a gradient. Throws RemoteError if a call on which the tensor
  /// depends threw; CommError if the worker is silent for the timeout, or if a rank has failed.
  Tensor wait();

 private:
  friend class RRef;
  friend class Master;
  Future(Master& master, int rank, rpc::Id id, rpc::Answer answer);
  Master* master_;
  int rank_;
  rpc::Id id_;
  rpc::Answer answer_;
  rpc::Id context_;  // 0: none. The context may end before the wait.
};

/// A reference to a tensor on a worker. The worker keeps the tensor until the last copy of the reference is gone.
class RRef {
 public:
  /// Returns the worker's rank.
  int rank() const { return owner_->rank; }
  /// Asks for a copy of the tensor, without waiting.
  Future fetch() const;
  /// Waits for a copy of the tensor. Throws as Future::wait does.
  Tensor to_here() const { return fetch().wait(); }

 private:
  friend class Master;
  friend class RemoteModule;
  friend class DistributedContext;
  friend class DistributedOptimizer;
  /// Tells the worker to drop the tensor. Its constructor throws UsageError for a rank that is no worker.
  struct Owner {
    Owner(Master& master, int rank, rpc::Id id);
    ~Owner();
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    Master& master;
    std::shared_ptr<rpc::Connection> connection;
    int rank;
    rpc::Id id;
  };
  RRef(Master& master, int rank, rpc::Id id) : owner_(std::make_shared<Owner>(master, rank, id)) {}
  rpc::Id id() const { return owner_->id; }
  std::shared_ptr<const Owner> owner_;
};

/// References to tensors of modules, with their names.
using NamedRRefs = std::vector<std::pair<std::string, RRef>>;
/// Waits for copies of the tensors. Throws as Future::wait does.
NamedTensors to_here(const NamedRRefs& tensors);

/// A module on a worker, which keeps it until it is shut down.
class RemoteModule {
 public:
  int rank() const { return rank_; }
  /// Calls the module's forward on its worker, without waiting. Within a DistributedContext the call is recorded for a
  /// backward; a tensor of the master gets no gradient.
  RRef forward(const RRef& x) const;
  RRef forward(const Tensor& x) const;
  /// Switches the module to training (as it is made) or to evaluation, for the calls from now on. Does not wait.
  void train(bool on = true) const;
  /// Return references to the module's parameters, in the order of Module::named_parameters(), and to its buffers, such
  /// as the running statistics of batch norm. Wait for the worker.
  NamedRRefs named_parameters() const { return list(rpc::Task::parameters); }
  NamedRRefs named_buffers() const { return list(rpc::Task::buffers); }

 private:
  friend class Master;
  friend class DistributedContext;
  /// `input` is the same as `x`, on this worker after the commands `before`.
  RRef forward(const RRef& x, const RRef& input, std::vector<rpc::Command> before) const;
  NamedRRefs list(rpc::Task task) const;
  RemoteModule(Master& master, int rank, rpc::Id id) : master_(&master), rank_(rank), id_(id) {}
  Master* master_;
  int rank_;
  rpc::Id id_;
};

/// The master's end of remote calls. References, futures, modules and contexts must not be used after it is gone.
class Master {
 public:
  /// Collective over `comm`, as are the workers' constructors. `timeout` is that of the world, in seconds.
  Master(Communicator& comm, double timeout) : connection_(std::make_shared<rpc::Connection>(comm, timeout)) {}
  Master(const Master&) = delete;
  Master& operator=(const Master&) = delete;

  int workers() const { return connection_->workers(); }
  /// Makes a module on rank `rank` by the factory of this name in the table, and waits until it is there. Throws
  /// UsageError for a rank that is no worker; RemoteError if there is no such factory, or if it throws.
  RemoteModule remote(int rank, const std::string& factory);
  /// Calls the function of this name in the table on rank `rank`, with these arguments, without waiting. Throws as
  /// put() does.
  Future rpc_async(int rank, const std::string& function, const std::vector<Tensor>& arguments = {});
  /// Does the same, and waits for the result. Throws as Future::wait does.
  Tensor rpc_sync(int rank, const std::string& function, const std::vector<Tensor>& arguments = {}) {
    return rpc_async(rank, function, arguments).wait();
  }
  /// Sends a copy of `tensor` to rank `rank`. Throws UsageError for a rank that is no worker; Error for an undefined
  /// tensor.
  RRef put(int rank, const Tensor& tensor);
  /// Returns the time by the clock of rank `rank`, how long it has waited for others, what it has sent, and the peak of
  /// its memory since the last report. Rank 0 is the master; waits for a worker. Throws as put() does.
  rpc::Report report(int rank) { return connection_->report(rank); }
  /// Returns what all ranks have done, the master first, by rank.
  std::vector<rpc::Report> reports();
  /// Lets the workers end, after all that they were told before. Called by run_with_master. A second call does nothing.
  void shut_down() { connection_->shut_down(); }

 private:
  friend class Future;
  friend class RRef;
  friend class RemoteModule;
  friend class DistributedContext;
  friend class DistributedOptimizer;
  /// Returns the command to keep a copy of `tensor`, which the caller may write to, as value `as` of worker `rank`.
  rpc::Command keep(int rank, rpc::Id as, const Tensor& tensor) const;
  /// Returns the number of the current context, or 0.
  rpc::Id context_id() const;
  /// Returns a reference to the same values on rank `rank`; the workers exchange them if necessary.
  RRef at(int rank, const RRef& value);

  std::shared_ptr<rpc::Connection> connection_;
  DistributedContext* context_ = nullptr;  // the current one
};

/// Runs `body` on rank 0 of the world, whose other ranks serve it as workers until it returns. Throws as `launch` does,
/// and UsageError for a world without a worker.
void run_with_master(const World& world, const RemoteTable& table, const std::function<void(Master& master)>& body);

}  // namespace stagecoach
