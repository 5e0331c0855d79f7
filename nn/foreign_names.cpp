#include "nn/foreign_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace stagecoach {
namespace {

/// Parts of names.
struct Renamed {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Renamed kRenamed[] = {
    {".shortcut.conv.", ".downsample.0."},
    {".shortcut.bn.", ".downsample.1."},
};
constexpr Renamed kPositions = {"patch_embed.pos_embed", "pos_embed"};  // ours [T, C], theirs [1, T, C]

constexpr std::string_view kWrappers[] = {"module.", "_orig_mod."};  // of DistributedDataParallel, of torch.compile
constexpr std::string_view kNotOurs[] = {".num_batches_tracked", ".attn.bias", ".attn.masked_bias"};

std::string without_wrappers(std::string_view name) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view wrapper : kWrappers) {
      if (name.starts_with(wrapper)) {
        name.remove_prefix(wrapper.size());
        found = true;
      }
    }
  }
  return std::string(name);
}

std::string with_part_replaced(std::string name, std::string_view Renamed::*from, std::string_view Renamed::*to) {
  for (const Renamed& part : kRenamed) {
    if (const std::size_t at = name.find(part.*from); at != std::string::npos) {
      return name.replace(at, (part.*from).size(), part.*to);
    }
  }
  return name == kPositions.*from ? std::string(kPositions.*to) : name;
}

}  // namespace

std::string our_name(const std::string& given, const std::set<std::string>& ours) {
  const std::string name = ours.contains(given) ? given : without_wrappers(given);
  const std::string renamed = with_part_replaced(name, &Renamed::theirs, &Renamed::ours);
  return ours.contains(name) ? name : ours.contains(renamed) ? renamed : given;
}

NamedTensors with_our_names(const NamedTensors& tensors, const NamedTensors& ours) {
  std::set<std::string> names;
  std::transform(ours.begin(), ours.end(), std::inserter(names, names.end()), [](const auto& n) { return n.first; });
  const std::map<std::string, Tensor> known(ours.begin(), ours.end());
  NamedTensors renamed;
  for (const auto& [given, tensor] : tensors) {
    const std::string name = our_name(given, names);
    const auto found = known.find(name);
    const bool is_needless = std::any_of(std::begin(kNotOurs), std::end(kNotOurs),
                                         [&](std::string_view end) { return std::string_view(name).ends_with(end); });
    if (found != known.end()) {
      const bool has_batch = tensor.dims() == found->second.dims() + 1 && tensor.size(0) == 1;
      renamed.emplace_back(name, name == kPositions.ours && has_batch ? tensor.reshape(found->second.shape()) : tensor);
    } else if (!is_needless) {
      renamed.emplace_back(given, tensor);
    }
  }
  return renamed;
}

NamedTensors with_pytorch_names(const NamedTensors& ours) {
  NamedTensors renamed;
  for (const auto& [name, tensor] : ours) {
    renamed.emplace_back(
        with_part_replaced(name, &Renamed::ours, &Renamed::theirs),
        name == kPositions.ours ? tensor.detach().reshape({1, tensor.size(0), tensor.size(1)}) : tensor);
  }
  return renamed;
}

}  // namespace stagecoach
