#include "parallel/rpc/worker.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/grad_mode.h"
#include "core/ops.h"
#include "parallel/comm/activity.h"
#include "parallel/rpc/endpoint.h"
#include "parallel/rpc/kept_values.h"
#include "parallel/rpc/worker_contexts.h"

namespace stagecoach::rpc {
namespace {

constexpr int kMaster = 0;

/// Returns the value that `compute` returns or, if it throws, the error with its place. Failures of communication are
/// not errors of a call: they end the worker.
template <class Compute>
Value value_or_failure(int rank, const std::string& what, const Compute& compute) {
  try {
    return compute();
  } catch (const CommError&) {
    throw;
  } catch (const Failed& error) {
    return Failure{error.what()};
  } catch (const std::exception& error) {
    return Failure{fmt::format("rank {}: {}: {}", rank, what, error.what())};
  }
}

/// Returns entry `name` of `entries`. Throws Error that lists those that exist.
const Callable& entry(const std::map<std::string, Callable>& entries, const std::string& name, const std::string& kind,
                      const char* advice) {
  const auto found = entries.find(name);
  if (found == entries.end()) {
    std::vector<std::string> names;
    for (const auto& [each, callable] : entries) {
      names.push_back(each);
    }
    throw Error(fmt::format("no {} is named '{}': expected one of [{}]; add it to {}", kind, name,
                            fmt::join(names, ", "), advice));
  }
  return found->second;
}

bool is_floating(const Tensor& tensor) { return tensor.dtype() == DType::float32 || tensor.dtype() == DType::float64; }

/// The state of a worker, and one function per kind of command.
class Worker {
 public:
  Worker(const RemoteTable& table, Communicator& comm, double timeout)
      : table_(table), endpoint_(comm, timeout, Heartbeat::Beats::always) {}

  void serve();

 private:
  using Do = void (Worker::*)(Command& command);
  static const Do kDo[];

  void call(Command& command) {
    Kept result;
    result.value = value_or_failure(endpoint_.rank(), fmt::format("call of '{}'", command.name), [&] {
      const std::optional<Object> object = command.of == 0 ? std::nullopt : std::optional(kept_.object(command.of));
      const Callable& callable =
          object ? entry(object->type->methods, command.name, fmt::format("method of '{}'", object->type->name),
                         "its class")
                 : entry(table_.callables(), command.name, "function or class", "the table that all ranks build");
      const std::vector<Value> arguments = resolve(command, result.inputs);
      std::optional<NoGrad> no_grad;
      if (command.no_grad) {
        no_grad.emplace();
      }
      const BatchScope position(command.position);
      Value returned = callable({endpoint_.device(), arguments, object ? &*object : nullptr});
      for_each_tensor(returned, [&](const Tensor& tensor) {
        STAGECOACH_CHECK(tensor.device() == endpoint_.device(),
                         "the result is on {}: expected the worker's device, {}; make it there",
                         to_string(tensor.device()), to_string(endpoint_.device()));
      });
      return returned;
    });
    if (command.context == 0 && std::holds_alternative<Tensor>(result.value)) {
      for_each_tensor(result.value, [](Tensor& tensor) { tensor = tensor.is_leaf() ? tensor : tensor.detach(); });
    }
    contexts_.note_error(command.context, result.value);
    kept_.keep(command.result, std::move(result));
  }

  /// Returns the arguments of a call, references replaced by values. Adds those that need a gradient to `inputs`.
  std::vector<Value> resolve(Command& command, std::vector<Tensor>& inputs) {
    std::vector<Value> arguments;
    std::map<Id, Tensor> leaves;  // of values that are passed more than once
    for (std::size_t i = 0; i < command.arguments.size(); ++i) {
      const auto* reference = std::get_if<Reference>(&command.arguments[i]);
      const Id id = reference == nullptr ? 0 : reference->id;
      Value& argument =
          arguments.emplace_back(reference == nullptr ? std::move(command.arguments[i]) : kept_.value(id));
      const bool needs_grad = i < 64 && (command.needs_grad >> i & 1) != 0;
      if (Tensor* tensor = std::get_if<Tensor>(&argument); tensor != nullptr && tensor->defined()) {
        Tensor& leaf = leaves[id];
        leaf = id != 0 && leaf.defined() ? leaf : tensor->detach();  // the graph begins here
        leaf.set_requires_grad(leaf.requires_grad() || (needs_grad && is_floating(leaf)));
        *tensor = leaf;
      }
      if (needs_grad) {
        const Tensor* tensor = std::get_if<Tensor>(&argument);
        inputs.push_back(tensor != nullptr && tensor->requires_grad() ? *tensor : Tensor());
      }
    }
    return arguments;
  }

  void backward(Command& command) {
    STAGECOACH_CHECK(command.arguments.size() >= 2, "remote call: a backward without gradients");
    std::vector<Tensor> sums;
    const Value done = value_or_failure(endpoint_.rank(), "backward", [&]() -> Value {
      std::vector<Tensor> taken;
      for (Value& argument : command.arguments) {
        const auto* reference = std::get_if<Reference>(&argument);
        taken.push_back(tensor_in(reference == nullptr ? std::move(argument) : kept_.take(reference->id)));
      }
      const NoGrad no_grad;
      Tensor gradient = taken[0].defined() ? taken[0] : taken[1];
      if (taken[0].defined() && taken[1].defined()) {
        gradient = add(taken[0], taken[1]);
      }
      sums.assign(taken.begin() + 2, taken.end());
      taken.clear();            // the sums may then be added to in place
      kept_.value(command.of);  // throws if it is an error
      contexts_.backward(command.context, kept_.at(command.of), gradient, sums);
      return {};
    });
    contexts_.note_error(command.context, done);
    for (std::size_t i = 0; i + 2 < command.arguments.size(); ++i) {
      const bool has_failed = std::holds_alternative<Failure>(done);
      kept_.keep(command.result + static_cast<Id>(i), {has_failed || !sums[i].defined() ? done : sums[i]});
    }
  }
  void step(Command& command) {
    answer("step of an optimizer", [&]() -> Value {
      contexts_.step(command.context, *as<std::shared_ptr<Optimizer>>(kept_.value(command.of), 0));
      return {};
    });
  }

  void check(Command& command) { endpoint_.send(contexts_.error(command.context), kMaster); }
  void confirm(Command& command) {
    const auto* failure = std::get_if<Failure>(&kept_.at(command.of).value);
    endpoint_.send(failure == nullptr ? Value() : *failure, kMaster);
  }
  void keep(Command& command) { kept_.keep(command.result, {std::move(command.arguments.at(0))}); }

  void pack(Command& command) {
    Value list = value_or_failure(endpoint_.rank(), "a list of tensors", [&]() -> Value {
      NamedTensors tensors;
      for (std::size_t i = 0; i + 1 < command.arguments.size(); i += 2) {
        const Id id = std::get<Reference>(command.arguments[i + 1]).id;
        tensors.emplace_back(std::get<std::string>(command.arguments[i]), as<Tensor>(kept_.value(id), 0));
      }
      return tensors;
    });
    kept_.keep(command.result, {std::move(list)});
  }
  void unpack(Command& command) {
    answer("a list of tensors", [&]() -> Value {
      std::string names;
      Id next = command.result;
      for (const auto& [name, tensor] : as<NamedTensors>(kept_.value(command.of), 0)) {
        kept_.keep(next++, {tensor});
        names += name + '\n';
      }
      return names;
    });
  }

  void send(Command& command) { send_value(kept_.at(command.of).value, command.peer); }
  void send_and_drop(Command& command) {
    Value value = std::move(kept_.at(command.of).value);
    kept_.drop(command.of);
    send_value(std::move(value), command.peer);
  }
  void receive(Command& command) { kept_.keep(command.result, {endpoint_.receive_value(command.peer)}); }
  void report(Command&) { endpoint_.send(endpoint_.report().to_tensor(endpoint_.device()), kMaster); }
  void drop(Command& command) {
    for (const Value& argument : command.arguments) {
      kept_.drop(std::get<Reference>(argument).id);
    }
  }
  void end_context(Command& command) { contexts_.end(command.context); }

  /// Sends the master the result of `compute`, or the error that it throws.
  template <class Compute>
  void answer(const std::string& what, const Compute& compute) {
    endpoint_.send(value_or_failure(endpoint_.rank(), what, compute), kMaster);
  }

  /// Sends a copy of a value, as it belongs to the receiver and this rank may write to its own; or the value itself, if
  /// nothing else on this rank refers to it.
  void send_value(Value value, int to) {
    for_each_tensor(value, [](Tensor& tensor) {
      if (!tensor.is_donatable()) {
        const NoGrad no_grad;
        tensor = tensor.clone();
      }
    });
    if (std::holds_alternative<Object>(value)) {
      value = Failure{fmt::format("rank {}: {} cannot be sent; call its methods by the reference", endpoint_.rank(),
                                  kind_of(value))};
    }
    endpoint_.send(value, to);
  }

  const RemoteTable& table_;
  Endpoint endpoint_;
  KeptValues kept_;
  WorkerContexts contexts_;
};

const Worker::Do Worker::kDo[] = {
    &Worker::call,    &Worker::backward, &Worker::step,   &Worker::check,       &Worker::confirm,
    &Worker::keep,    &Worker::pack,     &Worker::unpack, &Worker::send,        &Worker::send_and_drop,
    &Worker::receive, &Worker::report,   &Worker::drop,   &Worker::end_context,
};

void Worker::serve() {
  const Activity activity("service of remote calls");
  static_assert(std::size(kDo) == static_cast<std::size_t>(Task::shut_down));
  for (bool is_open = true; is_open;) {
    for (Command& next : endpoint_.receive_commands(kMaster)) {
      Command command = std::move(next);  // its values are then no longer referred to by the message
      is_open = command.task != Task::shut_down;
      if (is_open) {
        const Do carry_out = kDo[static_cast<std::size_t>(command.task)];
        (this->*carry_out)(command);
      }
    }
  }
  endpoint_.end();
}

}  // namespace

void serve_master(const RemoteTable& table, Communicator& comm, double timeout) {
  Worker(table, comm, timeout).serve();
}

}  // namespace stagecoach::rpc
