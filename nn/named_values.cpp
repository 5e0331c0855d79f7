#include "nn/named_values.h"

#include <algorithm>

#include "core/base/error.h"

namespace stagecoach {
namespace {

auto find_value(NamedTensors& values, const std::string& name) {
  return std::find_if(values.begin(), values.end(), [&](const auto& value) { return value.first == name; });
}

std::string names_of(const NamedTensors& values) {
  std::string names;
  for (const auto& [name, value] : values) {
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  return names.empty() ? "none" : names;
}

}  // namespace

NamedValues::NamedValues(NamedTensors values) : values_(std::move(values)), outer_(current_) { current_ = this; }

NamedTensors NamedValues::all() { return current_ == nullptr ? NamedTensors{} : current_->values_; }

Tensor NamedValues::get(const std::string& name) {
  NamedTensors values = all();
  const auto found = find_value(values, name);
  STAGECOACH_CHECK(
      found != values.end(),
      "named values: expected a value '{}', got {}; give it to the Pipe beside the input, or to NamedValues "
      "before the forward; a Stash must come earlier in the same Sequential",
      name, names_of(values));
  return found->second;
}

void NamedValues::put(const std::string& name, const Tensor& value) {
  STAGECOACH_CHECK(current_ != nullptr,
                   "named values: there is no scope for '{}'; construct NamedValues before the forward", name);
  const auto found = find_value(current_->values_, name);
  if (found != current_->values_.end()) {
    found->second = value;
  } else {
    current_->values_.emplace_back(name, value);
  }
}

}  // namespace stagecoach
