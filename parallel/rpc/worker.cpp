#include "parallel/rpc/worker.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/backward.h"
#include "core/autograd/grad_mode.h"
#include "core/base/on_exit.h"
#include "core/base/throw_if.h"
#include "parallel/comm/activity.h"
#include "parallel/rpc/endpoint.h"

namespace stagecoach::rpc {
namespace {

constexpr int kMaster = 0;

/// An error of an earlier command, whose text already says where it happened.
class Failed : public Error {
 public:
  using Error::Error;
};

/// Returns the value that `compute` returns or, if it throws, the error with its place. Failures of communication are
/// not errors of a call: they end the worker.
template <class Compute>
Value value_or_error(int rank, const std::string& what, const Compute& compute) {
  try {
    return compute();
  } catch (const CommError&) {
    throw;
  } catch (const Failed& error) {
    return {.error = error.what()};
  } catch (const std::exception& error) {
    return {.error = fmt::format("rank {}: {}: {}", rank, what, error.what())};
  }
}

/// Returns the entry `name` of one of the table's maps. Throws Error that lists those that exist.
template <class Entries>
const auto& entry(const Entries& entries, const char* kind, const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end()) {
    std::vector<std::string> names;
    for (const auto& [each, value] : entries) {
      names.push_back(each);
    }
    throw Error(fmt::format("no {} is named '{}': expected one of [{}]; add it to the table that all ranks build", kind,
                            name, fmt::join(names, ", ")));
  }
  return found->second;
}

/// Throws Error unless a tensor that the table's code has made is on `device`: it is sent from there.
void require_on(Device device, const std::string& what, const Tensor& tensor) {
  STAGECOACH_CHECK(!tensor.defined() || tensor.device() == device,
                   "{} is on {}: expected the worker's device, {}; make it there", what, to_string(tensor.device()),
                   to_string(device));
}

/// The state of a worker, and one function per kind of command.
class Worker {
 public:
  Worker(const RemoteTable& table, Communicator& comm, double timeout)
      : table_(table), endpoint_(comm, timeout, Heartbeat::Beats::always) {}

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

  void make_module(const Command& command) {
    answer(fmt::format("making module '{}'", command.name), [&]() -> Value {
      auto module = entry(table_.modules, "module", command.name)(endpoint_.device());
      STAGECOACH_CHECK(module != nullptr, "the factory returned null: expected a module");
      NamedTensors parameters = module->named_parameters();
      NamedTensors buffers = module->named_buffers();
      for (const auto& [name, parameter] : parameters) {
        require_on(endpoint_.device(), fmt::format("parameter '{}'", name), parameter);
      }
      for (const auto& [name, buffer] : buffers) {
        require_on(endpoint_.device(), fmt::format("buffer '{}'", name), buffer);
      }
      modules_[command.result] = {std::move(module), command.name, std::move(parameters), std::move(buffers)};
      return {};
    });
  }

  void parameters(const Command& command) { list(command, modules_.at(command.of).parameters); }
  void buffers(const Command& command) { list(command, modules_.at(command.of).buffers); }
  void train(const Command& command) { modules_.at(command.of).module->train(command.is_on); }

  void make_optimizer(const Command& command) {
    answer(fmt::format("making optimizer '{}'", command.name), [&]() -> Value {
      NamedTensors parameters;
      for (const Id id : command.arguments) {
        parameters.emplace_back(fmt::format("parameter {}", id), tensor(id));
      }
      auto optimizer = entry(table_.optimizers, "optimizer", command.name)(std::move(parameters));
      STAGECOACH_CHECK(optimizer != nullptr, "the factory returned null: expected an optimizer");
      optimizers_[command.result] = std::move(optimizer);
      return {};
    });
  }

  void call(const Command& command) {
    keep_result(command, fmt::format("function '{}'", command.name),
                [&](Kept&) { return entry(table_.functions, "function", command.name)(tensors(command.arguments)); });
  }

  void forward(const Command& command) {
    KeptModule& called = modules_.at(command.of);
    keep_result(command, fmt::format("forward of '{}'", called.name), [&](Kept& kept) {
      kept.input = tensor(command.arguments[0]).detach();  // the graph begins here
      if (command.context == 0) {
        const NoGrad no_grad;
        return called.module->forward(kept.input);
      }
      kept.input.set_requires_grad(command.needs_input_grad);
      kept.parameters = &called.parameters;
      return called.module->forward(kept.input);
    });
  }

  void backward(const Command& command) {
    keep_result(command, "backward", [&](Kept&) {
      const Tensor& output = tensor(command.of);
      const Tensor& gradient = tensor(command.arguments[0]);
      Kept& of = kept_.at(command.of);
      const bool is_recorded =
          of.input.requires_grad() || !output.is_leaf();  // not for a first module without parameters
      if (is_recorded) {
        with_gradients(contexts_[command.context], *of.parameters, [&] { stagecoach::backward(output, gradient); });
      }
      of.value.tensor = output.detach();  // the graph is used up
      return std::exchange(of.input, {}).grad();
    });
  }

  void step(const Command& command) {
    answer("step of an optimizer", [&]() -> Value {
      Context none;  // of a worker that takes no part in the context: nothing is kept there, for nobody would end it
      const auto found = contexts_.find(command.context);
      Context& context = found == contexts_.end() ? none : found->second;
      throw_if<Failed>(!context.error.empty(), "{}", context.error);
      Optimizer& optimizer = *optimizers_.at(command.of);
      with_gradients(context, optimizer.parameters(), [&] { optimizer.step(); });
      return {};
    });
  }

  void check(const Command& command) { endpoint_.send(Value{.error = contexts_[command.context].error}, kMaster); }
  void keep(const Command& command) { kept_[command.result] = {.value = command.value}; }
  void send(const Command& command) { send_value(kept_.at(command.of).value, command.peer); }
  void send_and_drop(const Command& command) { send_value(take(command.of), command.peer); }
  void receive(const Command& command) { kept_[command.result] = {.value = endpoint_.receive_value(command.peer)}; }

  void report(const Command&) {
    endpoint_.send(Value{.tensor = endpoint_.report().to_tensor(endpoint_.device())}, kMaster);
  }

  void drop(const Command& command) { kept_.erase(command.of); }
  void end_context(const Command& command) { contexts_.erase(command.context); }

  /// Keeps tensors of a module as values, and answers with their names.
  void list(const Command& command, const NamedTensors& tensors) {
    answer("listing tensors", [&]() -> Value {
      std::string names;
      Id next = command.result;
      for (const auto& [name, tensor] : tensors) {
        kept_[next++] = {.value = {.tensor = tensor}};
        names += name + '\n';
      }
      return {.tensor = names.empty() ? Tensor() : tensor_of(names, endpoint_.device())};
    });
  }

  /// Keeps the result of `compute`, or the error that it throws, as `command.result`.
  template <class Compute>
  void keep_result(const Command& command, const std::string& what, const Compute& compute) {
    Kept kept;
    kept.value = value_or_error(endpoint_.rank(), what, [&] {
      const Tensor result = compute(kept);
      require_on(endpoint_.device(), "the result", result);
      return Value{.tensor = result};
    });
    if (command.context != 0) {
      if (std::string& first = contexts_[command.context].error; first.empty()) {
        first = kept.value.error;
      }
    }
    kept_[command.result] = std::move(kept);
  }

  /// Sends the master the result of `compute`, or the error that it throws.
  template <class Compute>
  void answer(const std::string& what, const Compute& compute) {
    endpoint_.send(value_or_error(endpoint_.rank(), what, compute), kMaster);
  }

  /// Sends a copy of a value, as it belongs to the receiver and this rank may write to its own; or the value itself, if
  /// nothing else on this rank refers to it.
  void send_value(Value value, int to) {
    if (value.tensor.defined() && !value.tensor.is_donatable()) {
      const NoGrad no_grad;
      value.tensor = value.tensor.clone();
    }
    endpoint_.send(value, to);
  }

  /// Forgets value `id` and returns it.
  Value take(Id id) {
    Value value = std::move(kept_.at(id).value);
    kept_.erase(id);
    return value;
  }

  /// Returns the tensor `id`. Throws Failed if an error took its place.
  const Tensor& tensor(Id id) const {
    const Value& value = kept_.at(id).value;
    throw_if<Failed>(!value.error.empty(), "{}", value.error);
    return value.tensor;
  }

  std::vector<Tensor> tensors(const std::vector<Id>& ids) const {
    std::vector<Tensor> found;
    for (const Id id : ids) {
      found.push_back(tensor(id));
    }
    return found;
  }

  /// Runs `body` while the gradients of `parameters` are those of the context.
  template <class Body>
  void with_gradients(Context& context, const NamedTensors& parameters, const Body& body) {
    for (auto [name, parameter] : parameters) {
      parameter.set_grad(context.gradients[parameter.id()]);
    }
    const OnExit collect([&] {
      for (const auto& named : parameters) {  // allocates nothing: the context has an entry for each
        Tensor parameter = named.second;
        context.gradients[parameter.id()] = parameter.grad();
        parameter.zero_grad();
      }
    });
    body();
  }

  const RemoteTable& table_;
  Endpoint endpoint_;
  std::map<Id, Kept> kept_;
  std::map<Id, KeptModule> modules_;
  std::map<Id, std::unique_ptr<Optimizer>> optimizers_;
  std::map<Id, Context> contexts_;
};

const Worker::Do Worker::kDo[] = {
    &Worker::make_module, &Worker::parameters,  &Worker::buffers,       &Worker::train,   &Worker::make_optimizer,
    &Worker::call,        &Worker::forward,     &Worker::backward,      &Worker::step,    &Worker::check,
    &Worker::keep,        &Worker::send,        &Worker::send_and_drop, &Worker::receive, &Worker::report,
    &Worker::drop,        &Worker::end_context,
};

void Worker::serve() {
  const Activity activity("service of remote calls");
  static_assert(std::size(kDo) == static_cast<std::size_t>(Task::shut_down));
  for (bool is_open = true; is_open;) {
    for (Command& next : endpoint_.receive_commands(kMaster)) {
      const Command command = std::move(next);  // its value is then no longer referred to by the message
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
