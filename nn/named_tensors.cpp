#include "nn/named_tensors.h"

#include <fmt/format.h>

#include <map>

#include "core/base/throw_if.h"

namespace stagecoach {

void copy_by_name(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  std::vector<std::string> faults;
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : from) {
    if (!given.emplace(name, tensor).second) {
      faults.push_back(fmt::format("duplicate: {}", name));
    }
  }
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, target] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      faults.push_back(fmt::format("missing: {} {}", name, describe(target)));
      continue;
    }
    const Tensor source = found->second;
    given.erase(found);
    if (source.shape() != target.shape() || source.dtype() != target.dtype()) {
      faults.push_back(fmt::format("differs: {}: expected {}, got {}", name, describe(target), describe(source)));
    }
    copies.emplace_back(source, target);
  }
  for (const auto& [name, tensor] : given) {
    faults.push_back(fmt::format("unexpected: {} {}", name, describe(tensor)));
  }
  throw_if<DataError>(!faults.empty(), "{} does not match, nothing was changed: {}", what, fmt::join(faults, "; "));
  for (auto& [source, target] : copies) {
    target.copy_from(source);
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
