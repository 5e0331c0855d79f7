#include "nn/named_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/base/throw_if.h"

namespace stagecoach {

namespace {

/// Returns "float32[64, 10]": a file has no device.
std::string type_of(const Tensor& tensor) { return name_of(tensor.dtype()) + to_string(tensor.shape()); }

}  // namespace

Tensor find_tensor(const NamedTensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& named) { return named.first == name; });
  return found == tensors.end() ? Tensor{} : found->second;
}

void require_matching(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  std::vector<std::string> faults;
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : from) {
    if (!given.emplace(name, tensor).second) {
      faults.push_back(fmt::format("duplicate: {}", name));
    }
  }
  for (const auto& [name, target] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      faults.push_back(fmt::format("missing: {} {}", name, type_of(target)));
      continue;
    }
    if (type_of(found->second) != type_of(target)) {
      faults.push_back(fmt::format("differs: {}: expected {}, got {}", name, type_of(target), type_of(found->second)));
    }
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) {
    faults.push_back(fmt::format("unexpected: {} {}", name, type_of(tensor)));
  }
  throw_if<DataError>(!faults.empty(), "{} does not match, nothing was changed: {}", what, fmt::join(faults, "; "));
}

void copy_by_name(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  require_matching(from, into, what);
  const std::map<std::string, Tensor> given(from.begin(), from.end());
  for (const auto& [name, target] : into) {
    Tensor(target).copy_from(given.at(name));
  }
}

NamedTensors below(const std::string& prefix, const NamedTensors& tensors) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors) {
    if (name.rfind(prefix, 0) == 0) {
      found.emplace_back(name.substr(prefix.size()), tensor);
    }
  }
  return found;
}

}  // namespace stagecoach
