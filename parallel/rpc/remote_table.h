#pragma once
/// @file
/// What can be made and called on another rank, by name. Ranks may be processes, so a function cannot be sent: each
/// rank of the program builds the same table, and a call sends only the name and the arguments.
///
///     RemoteTable table;
///     table.add_function("scaled", [](const Tensor& x, double factor) { return scale(x, factor); });
///     table.add_class("Counter", [](std::int64_t start) { return std::make_shared<Counter>(start); })
///         .method("add", &Counter::add)
///         .method("value", [](const Counter& counter) { return counter.value(); });
///
/// Parameters and results are bool, integers, floating-point numbers, std::string, Tensor and NamedTensors; a parameter
/// can also be a std::shared_ptr to an object of the same worker. Number and types of the arguments are checked in each
/// call. If the first parameter is a Device, it is the worker's, and no argument.

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "nn/make_optimizer.h"
#include "nn/module.h"
#include "parallel/rpc/value.h"

namespace stagecoach {
namespace rpc {

/// A call as it arrives at a worker.
struct Call {
  Device device;  ///< the worker's
  std::span<const Value> arguments;
  const Object* object = nullptr;  ///< of a method
};
using Callable = std::function<Value(const Call& call)>;

struct RemoteClass {
  std::string name;
  std::map<std::string, Callable> methods = {};
};

/// Throws Error unless the call has `count` arguments.
void require_arguments(const Call& call, std::size_t count);

/// Calls `function` with the arguments of `call` as values of types A.
template <class R, class... A, class Function>
Value run(const Call& call, const Function& function) {
  require_arguments(call, sizeof...(A));
  return [&]<std::size_t... i>(std::index_sequence<i...>)->Value {
    if constexpr (std::is_void_v<R>) {
      function(as<std::decay_t<A>>(call.arguments[i], static_cast<int>(i) + 1)...);
      return {};
    } else {
      return value_of(std::decay_t<R>(function(as<std::decay_t<A>>(call.arguments[i], static_cast<int>(i) + 1)...)));
    }
  }
  (std::index_sequence_for<A...>{});
}

template <class R, class... A>
Callable callable_of(std::function<R(A...)> function) {
  return [function = std::move(function)](const Call& call) { return run<R, A...>(call, function); };
}
template <class R, class... A>
Callable callable_of(std::function<R(Device, A...)> function) {
  return [function = std::move(function)](const Call& call) {
    return run<R, A...>(call, [&](auto... arguments) { return function(call.device, std::move(arguments)...); });
  };
}

/// Returns a method, whose first parameter is the object, as a Callable. The table keeps objects as Kept.
template <class Kept, class R, class Self, class... A>
Callable method_of(std::function<R(Self, A...)> method) {
  return [method = std::move(method)](const Call& call) {
    const auto object = as<std::shared_ptr<Kept>>(*call.object, 0);
    return run<R, A...>(call, [&](auto... arguments) { return method(*object, std::move(arguments)...); });
  };
}
template <class Kept, class R, class Self, class... A>
Callable method_of(R (Self::*method)(A...)) {
  return method_of<Kept>(std::function<R(Self&, A...)>(method));
}
template <class Kept, class R, class Self, class... A>
Callable method_of(R (Self::*method)(A...) const) {
  return method_of<Kept>(std::function<R(const Self&, A...)>(method));
}

/// Returns a factory, whose result is a smart pointer, as one of objects of class `type` that are kept as Kept.
template <class Kept, class Pointer, class... A>
Callable factory_of(std::shared_ptr<const RemoteClass> type, std::function<Pointer(A...)> make) {
  return callable_of(std::function<Object(A...)>([type = std::move(type), make = std::move(make)](A... arguments) {
    std::shared_ptr<Kept> made = make(std::forward<A>(arguments)...);
    STAGECOACH_CHECK(made != nullptr, "the factory returned null: expected an object");
    return Object{type, made};
  }));
}

}  // namespace rpc

class RemoteTable {
 public:
  /// The methods of a class. T is what its factory makes.
  template <class T>
  class Class {
   public:
    explicit Class(std::shared_ptr<rpc::RemoteClass> type) : type_(std::move(type)) {}
    /// Adds a method, or a function whose first parameter is a reference to the object, under a name.
    template <class Method>
    Class& method(const std::string& name, Method method) {
      if constexpr (std::is_member_function_pointer_v<Method>) {
        type_->methods[name] = rpc::method_of<T>(method);
      } else {
        type_->methods[name] = rpc::method_of<T>(std::function(std::move(method)));
      }
      return *this;
    }

   private:
    std::shared_ptr<rpc::RemoteClass> type_;
  };

  /// Adds a function. Throws Error if the name is taken, as add_class does.
  template <class Function>
  RemoteTable& add_function(const std::string& name, Function function) {
    add(name, rpc::callable_of(std::function(std::move(function))));
    return *this;
  }

  /// Adds a class with a factory, which returns a smart pointer to a new object on the worker's device. A class of
  /// modules has the methods forward, train, named_parameters and named_buffers. A factory of optimizers takes
  /// NamedTensors first, and DistributedOptimizer calls it.
  template <class Factory>
  auto add_class(const std::string& name, Factory factory) {
    std::function make(std::move(factory));
    using Made = typename decltype(make)::result_type::element_type;
    using Kept = std::conditional_t<std::is_base_of_v<Optimizer, Made>, Optimizer, Made>;
    auto type = std::make_shared<rpc::RemoteClass>(rpc::RemoteClass{name});
    add(name, rpc::factory_of<Kept>(type, std::move(make)));
    Class<Kept> made(type);
    if constexpr (std::is_base_of_v<Module, Made>) {
      made.method("forward", &Module::forward).method("train", &Module::train);
      made.method("named_parameters", [](const Module& module) { return module.named_parameters(); });
      made.method("named_buffers", [](const Module& module) { return module.named_buffers(); });
    }
    return made;
  }

  /// Returns the functions and factories by name.
  const std::map<std::string, rpc::Callable>& callables() const { return callables_; }

 private:
  void add(const std::string& name, rpc::Callable callable);

  std::map<std::string, rpc::Callable> callables_;
};

}  // namespace stagecoach
