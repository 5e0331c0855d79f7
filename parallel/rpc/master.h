#pragma once
/// @file
/// Remote calls: rank 0 is the master, which makes objects on the other ranks and calls them there. The workers are
/// passive (see worker.h): only the master's program says what happens.
///
///     RemoteTable table;  // built by all ranks
///     table.add_class("Shard", [](Device device, std::int64_t classes) { … });
///     table.add_function("add", [](const Tensor& a, const Tensor& b) { return add(a, b); });
///     run_with_master(world, table, [&](Master& master) {
///       const RRef shard = master.remote("worker1", "Shard", 1000);
///       const RRef y = shard.remote("forward", x);
///       Future z = master.rpc_async("worker2", "add", y, y);  // y goes from worker to worker
///       Tensor here = z.wait();
///     });
///
/// docs/reference/remote_calls.md lists these calls beside PyTorch's.
///
/// Arguments are bool, integers, floating-point numbers, texts, tensors, of which the worker gets a copy, and
/// references, whose values the worker uses itself. A call does not wait for the worker. Workers do their commands in
/// order, so two workers that are called in turn for several micro-batches form a pipeline. A value that one worker
/// needs from another goes there directly. A call under the master's NoGrad records nothing on the worker either, and
/// one within its BatchScope draws there the random numbers of those samples (nn/batch_position.h).
///
/// Errors: what a call throws on a worker is kept in place of its result, and thrown as RemoteError where a value is
/// waited for; the worker goes on. A rank that dies, or shows no sign of life for the timeout of the world, ends all
/// ranks with CommError. Workers show signs of life by a thread of their own (heartbeat.h), so a command may take
/// longer than the timeout, and one that never ends is waited for. The master shows them only while it calls or waits:
/// if its own program does neither for so long, give the world a longer timeout. Source of the interface:
/// torch.distributed.rpc.

#include <functional>
#include <memory>
#include <optional>
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

/// Says which worker: by its rank, from 1, or by its name, "worker" and the rank.
class WorkerId {
 public:
  WorkerId(int rank) : rank_(rank) {}
  /// Throws UsageError for a text that is no worker's name.
  WorkerId(const std::string& name);
  WorkerId(const char* name) : WorkerId(std::string(name)) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// A value that a worker sends to the master. For use within the master's program.
class Future {
 public:
  /// Waits for the value, and returns it as a T (see rpc::as), a tensor on the master's device. Without a result the
  /// tensor is undefined. The output of a call that a DistributedContext has recorded is a leaf that collects a
  /// gradient while the context exists. Throws RemoteError if a call on which the value depends threw; Error if it is
  /// no T; CommError if the worker is silent for the timeout, or if a rank has failed.
  template <class T = Tensor>
  T wait() {
    return rpc::as<T>(value(), 0);
  }

 private:
  friend class RRef;
  friend class Master;
  Future(Master& master, int rank, rpc::Id id, rpc::Answer answer)
      : master_(&master), rank_(rank), id_(id), answer_(std::move(answer)) {}
  rpc::Value value();
  Master* master_;
  int rank_;
  rpc::Id id_;
  rpc::Answer answer_;
};

class RRef;
/// References to tensors, with their names.
using NamedRRefs = std::vector<std::pair<std::string, RRef>>;

/// A reference to a value or an object on a worker, which keeps it until the last copy of the reference is gone.
class RRef {
 public:
  /// Returns the worker's rank.
  int rank() const { return owner_->rank; }
  /// Asks for a copy of the value, without waiting.
  Future fetch() const;
  /// Waits for a copy of the value. Throws as Future::wait does.
  template <class T = Tensor>
  T to_here() const {
    return fetch().wait<T>();
  }
  /// Waits until the value is there. Throws RemoteError if an error took its place.
  void confirm() const;

  /// Calls a method of the object, without waiting, and returns a reference to its result.
  template <class... Arguments>
  RRef remote(const std::string& method, const Arguments&... arguments) const;
  /// Does the same, and asks for a copy of the result.
  template <class... Arguments>
  Future rpc_async(const std::string& method, const Arguments&... arguments) const;
  /// Does the same, and waits for the result. Throws as Future::wait does.
  template <class T = Tensor, class... Arguments>
  T rpc_sync(const std::string& method, const Arguments&... arguments) const {
    return rpc_async(method, arguments...).template wait<T>();
  }
  /// Calls a method that returns NamedTensors, and returns references to them. Waits for their names. Throws as
  /// Future::wait does.
  template <class... Arguments>
  NamedRRefs list(const std::string& method, const Arguments&... arguments) const {
    return remote(method, arguments...).unpacked();
  }

 private:
  friend class Future;
  friend class Master;
  friend class DistributedContext;
  friend class DistributedOptimizer;
  /// Tells the worker to drop the value. Its constructor throws UsageError for a rank that is no worker.
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
  NamedRRefs unpacked() const;
  std::shared_ptr<const Owner> owner_;
};

/// Waits for copies of the tensors. Throws as Future::wait does.
NamedTensors to_here(const NamedRRefs& tensors);

namespace rpc {

/// An argument as the master gives it: a value, or a reference to one of any worker.
using Argument = std::variant<Value, RRef>;
template <class T>
Argument argument_of(const T& argument) {
  if constexpr (std::is_same_v<T, RRef>) {
    return argument;
  } else {
    return value_of<std::decay_t<const T>>(argument);
  }
}
template <class... T>
std::vector<Argument> arguments_of(const T&... arguments) {
  return {argument_of(arguments)...};
}

/// What is called on rank `rank`: method `name` of object `object` or, if that is 0, an entry of the table.
struct Callee {
  int rank;
  std::string name;
  Id object = 0;
};

}  // namespace rpc

/// The master's end of remote calls. References, futures and contexts must not be used after it is gone.
class Master {
 public:
  /// Collective over `comm`, as are the workers' constructors. `timeout` is that of the world, in seconds.
  Master(Communicator& comm, double timeout) : connection_(std::make_shared<rpc::Connection>(comm, timeout)) {}
  Master(const Master&) = delete;
  Master& operator=(const Master&) = delete;

  int workers() const { return connection_->workers(); }
  /// Calls a factory or function of the table on a worker, without waiting, and returns a reference to the object or
  /// result. Throws UsageError for a rank that is no worker; Error for an undefined tensor.
  template <class... Arguments>
  RRef remote(const WorkerId& to, const std::string& name, const Arguments&... arguments) {
    return remote(rpc::Callee{to.rank(), name}, rpc::arguments_of(arguments...));
  }
  /// Does the same, and asks for a copy of the result.
  template <class... Arguments>
  Future rpc_async(const WorkerId& to, const std::string& name, const Arguments&... arguments) {
    return rpc_async(rpc::Callee{to.rank(), name}, rpc::arguments_of(arguments...));
  }
  /// Does the same, and waits for the result. Throws as Future::wait does.
  template <class T = Tensor, class... Arguments>
  T rpc_sync(const WorkerId& to, const std::string& name, const Arguments&... arguments) {
    return rpc_async(to, name, arguments...).template wait<T>();
  }
  /// Sends a copy of `tensor` to a worker. It gets no gradient: pass a tensor that needs one as an argument. Throws as
  /// remote() does.
  RRef put(const WorkerId& to, const Tensor& tensor);
  /// Returns the time by the clock of rank `rank`, how long it has waited for others, what it has sent, and the peak of
  /// its memory since the last report. Rank 0 is the master; waits for a worker. Throws as remote() does.
  rpc::Report report(int rank) { return connection_->report(rank); }
  /// Returns what all ranks have done, the master first, by rank.
  std::vector<rpc::Report> reports();
  /// Lets the workers end, after all that they were told before. Called by run_with_master. A second call does nothing.
  void shut_down() { connection_->shut_down(); }

 private:
  friend class Future;
  friend class RRef;
  friend class DistributedContext;
  friend class DistributedOptimizer;
  struct PreparedCall {
    RRef result;
    rpc::Command command = {};
    std::vector<RRef> used = {};  // on the same worker, until the command is sent
  };
  PreparedCall prepare(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments);
  RRef remote(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments);
  Future rpc_async(const rpc::Callee& callee, const std::vector<rpc::Argument>& arguments);
  /// Returns a copy of `tensor`, which the caller may write to, on the master's device.
  Tensor copy_of(int rank, const Tensor& tensor) const;
  /// Returns a reference to the same value on rank `rank`; the workers exchange it if necessary.
  RRef at(int rank, const RRef& value);

  std::shared_ptr<rpc::Connection> connection_;
  std::vector<DistributedContext*> contexts_;  // the last one records
};

template <class... Arguments>
RRef RRef::remote(const std::string& method, const Arguments&... arguments) const {
  return owner_->master.remote(rpc::Callee{rank(), method, id()}, rpc::arguments_of(arguments...));
}
template <class... Arguments>
Future RRef::rpc_async(const std::string& method, const Arguments&... arguments) const {
  return owner_->master.rpc_async(rpc::Callee{rank(), method, id()}, rpc::arguments_of(arguments...));
}

/// Runs `body` on rank 0 of the world, whose other ranks serve it as workers until it returns. Throws as `launch` does,
/// and UsageError for a world without a worker.
void run_with_master(const World& world, const RemoteTable& table, const std::function<void(Master& master)>& body);

}  // namespace stagecoach
