#pragma once
/// @file
/// What remote calls take and return: values, each with its type.

#include <any>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/error.h"
#include "nn/named_tensors.h"

namespace stagecoach::rpc {

/// Names something that a worker keeps. The master chooses the numbers, from 1.
using Id = std::int64_t;

/// The value that the receiver of a message keeps under this number.
struct Reference {
  Id id = 0;
};

/// The error that happened in the place of a value.
struct Failure {
  std::string text;  ///< names the rank where it happened
};

struct RemoteClass;

/// An object that a worker has made by a factory of the table. It cannot be sent.
struct Object {
  std::shared_ptr<const RemoteClass> type;
  std::any pointer;  ///< a std::shared_ptr
};

/// std::monostate is what a function without a result returns.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Tensor, NamedTensors, Reference,
                           Failure, Object>;

/// Returns "a tensor", "an object of class 'Shard1'" and so on.
std::string kind_of(const Value& value);

/// Returns a C++ value as a Value: a bool, a number, a text, a tensor, a list of named tensors. Throws Error for an
/// integer of more than 63 bits.
template <class T>
Value value_of(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else if constexpr (std::integral<T>) {
    STAGECOACH_CHECK(std::in_range<std::int64_t>(value), "remote call: expected an integer below 2^63, got {}", value);
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return std::string(std::move(value));
  } else {
    return Value(std::move(value));
  }
}

/// Throws Error: "argument 2: expected a number, got a text". Argument 0 is the result.
[[noreturn]] void refuse(const Value& value, int argument, const char* expected);

/// Returns a value as a T: bool, an integer, a floating-point number, std::string, Tensor, NamedTensors, or a
/// std::shared_ptr to an object of the worker. As a tensor, no value is an undefined one. Throws Error for a value of
/// another type.
template <class T>
T as(const Value& value, int argument) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string> || std::is_same_v<T, NamedTensors>) {
    if (const T* same = std::get_if<T>(&value)) {
      return *same;
    }
    refuse(value, argument, std::is_same_v<T, bool> ? "a bool" : std::is_same_v<T, std::string> ? "a text" : "a list");
  } else if constexpr (std::is_same_v<T, Tensor>) {
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
      return *tensor;
    }
    return std::holds_alternative<std::monostate>(value) ? Tensor() : (refuse(value, argument, "a tensor"), Tensor());
  } else if constexpr (std::integral<T>) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    return integer != nullptr && std::in_range<T>(*integer) ? static_cast<T>(*integer)
                                                            : (refuse(value, argument, "an integer"), T());
  } else if constexpr (std::floating_point<T>) {
    const auto* integer = std::get_if<std::int64_t>(&value);
    const auto* number = std::get_if<double>(&value);
    return static_cast<T>(integer != nullptr  ? static_cast<double>(*integer)
                          : number != nullptr ? *number
                                              : (refuse(value, argument, "a number"), 0.0));
  } else {
    const auto* object = std::get_if<Object>(&value);
    const T* pointer = object == nullptr ? nullptr : std::any_cast<T>(&object->pointer);
    return pointer == nullptr ? (refuse(value, argument, "an object of another class"), T()) : *pointer;
  }
}

}  // namespace stagecoach::rpc
