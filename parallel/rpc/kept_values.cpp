#include "parallel/rpc/kept_values.h"

namespace stagecoach::rpc {

Kept& KeptValues::at(Id id) {
  const auto found = kept_.find(id);
  STAGECOACH_CHECK(found != kept_.end(), "remote call: the worker keeps no value {}", id);
  return found->second;
}

const Value& KeptValues::value(Id id) {
  const Value& value = at(id).value;
  if (const auto* failure = std::get_if<Failure>(&value)) {
    throw Failed(failure->text);
  }
  return value;
}

Object KeptValues::object(Id id) {
  const Value& found = value(id);
  const auto* object = std::get_if<Object>(&found);
  STAGECOACH_CHECK(object != nullptr, "expected an object, got {}", kind_of(found));
  return *object;
}

Value KeptValues::take(Id id) {
  value(id);
  return std::move(kept_.extract(id).mapped().value);
}

}  // namespace stagecoach::rpc
