#include "nn/named_tensors.h"

#include <map>

#include "core/error.h"

namespace stagecoach {

void copy_by_name(const NamedTensors& from, const NamedTensors& into, const std::string& what) {
  std::string faults;
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : from) {
    if (!given.emplace(name, tensor).second) {
      faults += fmt::format("\n  twice: {}", name);
    }
  }
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, target] : into) {
    const auto found = given.find(name);
    if (found == given.end()) {
      faults += fmt::format("\n  missing: {} {}", name, describe(target));
      continue;
    }
    const Tensor source = found->second;
    given.erase(found);
    if (source.shape() != target.shape() || source.dtype() != target.dtype()) {
      faults += fmt::format("\n  differs: {} is {}, wanted {}", name, describe(source), describe(target));
    }
    copies.emplace_back(source, target);
  }
  for (const auto& [name, tensor] : given) {
    faults += fmt::format("\n  extra: {} {}", name, describe(tensor));
  }
  if (!faults.empty()) {
    throw DataError(what + " does not fit, nothing was changed:" + faults);
  }
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
