#include "chapters/common/initial_weights.h"

#include <algorithm>
#include <string>

#include "chapters/common/open.h"
#include "core/base/parse.h"
#include "nn/weights.h"
#include "parallel/tensor_parallel/join_slices.h"

namespace stagecoach {

void load_initial_weights(const TrainingSettings& training, const Dataset& data, Module& mine) {
  if (training.weights.empty()) {
    return;
  }
  LoadSettings settings;
  if (!training.weights_except.empty()) {
    for (const std::string_view layer : split_text(training.weights_except, ',')) {
      settings.keep.push_back(std::string(layer) + ".");
    }
  }
  NamedTensors into = weights_of(mine);
  for (const std::string& prefix : settings.keep) {
    std::erase_if(into, [&](const auto& named) { return named.first.starts_with(prefix); });
  }
  const auto is_mine = [&](const std::string& name) {
    return std::any_of(into.begin(), into.end(), [&](const auto& named) { return named.first == name; });
  };
  const auto whole = make_model_of(training, data);
  whole->materialize(training.seed, Device{DeviceType::meta});
  const NamedTensors loaded = load_weights_of(training.weights, weights_of(*whole), is_mine, settings);
  copy_by_name(cut_slices(loaded, mine.named_slices()), into, "'" + training.weights + "'");
}

}  // namespace stagecoach
