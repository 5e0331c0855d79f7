#pragma once
/// @file
/// A worker of remote calls: a passive rank, which does what rank 0, the master, tells it.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/rpc/endpoint.h"
#include "parallel/rpc/remote_table.h"

namespace stagecoach::rpc {

/// Does the commands of rank 0 in the order in which they come. A command that throws does not end the worker: its
/// error takes the place of its result, and of all that is computed from it, until someone asks for a value.
class Worker {
 public:
  /// Collective over `comm`. `table` and `comm` must outlive the worker; `timeout` is that of the world, in seconds.
  Worker(const RemoteTable& table, Communicator& comm, double timeout)
      : table_(table), endpoint_(comm, timeout, Heartbeat::Beats::always) {}

  /// Serves until the master shuts the worker down. Throws CommError if a rank has failed, or if one that this worker
  /// waits for has been silent for longer than the timeout.
  void serve();

 private:
  using Do = void (Worker::*)(const Command& command);
  static const Do kDo[];

  /// What is kept under an id: a value and, if it is the output of a module, the rest of its graph.
  struct Kept {
    Value value;
    Tensor input = {};                         // the leaf from which the output was computed
    const NamedTensors* parameters = nullptr;  // of the module
  };
  struct KeptModule {
    std::shared_ptr<Module> module;
    std::string name;
    NamedTensors parameters;
    NamedTensors buffers;
  };
  /// The state of a distributed autograd context on this worker.
  struct Context {
    std::map<const void*, Tensor> gradients;  // of the parameters, by Tensor::id
    std::string error;                        // the first one
  };

  void make_module(const Command& command);
  void parameters(const Command& command) { list(command, modules_.at(command.of).parameters); }
  void buffers(const Command& command) { list(command, modules_.at(command.of).buffers); }
  void train(const Command& command) { modules_.at(command.of).module->train(command.is_on); }
  void make_optimizer(const Command& command);
  void call(const Command& command);
  void forward(const Command& command);
  void backward(const Command& command);
  void step(const Command& command);
  void check(const Command& command);
  void keep(const Command& command) { kept_[command.result] = {.value = command.value}; }
  void send(const Command& command) { send_value(kept_.at(command.of).value, command.peer); }
  void send_and_drop(const Command& command) { send_value(take(command.of), command.peer); }
  void receive(const Command& command);
  void report(const Command& command);
  void drop(const Command& command) { kept_.erase(command.of); }
  void end_context(const Command& command);

  /// Keeps tensors of a module as values, and answers with their names.
  void list(const Command& command, const NamedTensors& tensors);
  /// Keeps the result of `compute`, or the error that it throws, as `command.result`.
  template <class Compute>
  void keep_result(const Command& command, const std::string& what, const Compute& compute);
  /// Sends the master the result of `compute`, or the error that it throws.
  template <class Compute>
  void answer(const std::string& what, const Compute& compute);
  /// Sends a copy of a value, as it belongs to the receiver and this rank may write to its own; or the value itself, if
  /// nothing else on this rank refers to it.
  void send_value(Value value, int to);
  /// Forgets value `id` and returns it.
  Value take(Id id) {
    Value value = std::move(kept_.at(id).value);
    kept_.erase(id);
    return value;
  }
  /// Returns the tensor `id`. Throws Failed if an error took its place.
  const Tensor& tensor(Id id) const;
  std::vector<Tensor> tensors(const std::vector<Id>& ids) const;
  template <class Body>
  void with_gradients(Context& context, const NamedTensors& parameters, const Body& body);

  const RemoteTable& table_;
  Endpoint endpoint_;
  std::map<Id, Kept> kept_;
  std::map<Id, KeptModule> modules_;
  std::map<Id, std::unique_ptr<Optimizer>> optimizers_;
  std::map<Id, Context> contexts_;
};

}  // namespace stagecoach::rpc
