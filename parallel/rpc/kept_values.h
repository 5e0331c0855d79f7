#pragma once
/// @file
/// What a worker keeps for its master: values and objects, by number.

#include <map>
#include <vector>

#include "core/base/error.h"
#include "parallel/rpc/value.h"

namespace stagecoach::rpc {

/// An error of an earlier command, whose text already says where it happened.
class Failed : public Error {
 public:
  using Error::Error;
};

/// A value and, if a context recorded it, the arguments from which it was computed and whose gradients are needed:
/// leaves, in their order; undefined where an argument can have no gradient. The graph of the value begins there.
struct Kept {
  Value value = {};
  std::vector<Tensor> inputs = {};
};

class KeptValues {
 public:
  /// Keeps a value under a number, in place of what was there.
  void keep(Id id, Kept kept) { kept_[id] = std::move(kept); }
  /// Forgets a value, if it is there.
  void drop(Id id) { kept_.erase(id); }
  /// Returns what is kept under a number. Throws Error if nothing is.
  Kept& at(Id id);
  /// Returns value `id`. Throws Failed if an error took its place, and as at() does.
  const Value& value(Id id);
  /// Returns object `id`. Throws Error if it is none, and as value() does.
  Object object(Id id);
  /// Returns value `id` and forgets it. Throws as value() does.
  Value take(Id id);

 private:
  std::map<Id, Kept> kept_;
};

/// Calls `visit` with each tensor in `value`.
template <class Visit>
void for_each_tensor(Value& value, const Visit& visit) {
  if (Tensor* tensor = std::get_if<Tensor>(&value); tensor != nullptr && tensor->defined()) {
    visit(*tensor);
  }
  if (NamedTensors* list = std::get_if<NamedTensors>(&value)) {
    for (auto& [name, tensor] : *list) {
      visit(tensor);
    }
  }
}

/// Returns the tensor in `value`, or an undefined one.
inline Tensor tensor_in(Value value) {
  Tensor* tensor = std::get_if<Tensor>(&value);
  return tensor == nullptr ? Tensor() : std::move(*tensor);
}

}  // namespace stagecoach::rpc
