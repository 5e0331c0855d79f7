#include "chapters/common/initial_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "chapters/common/open.h"
#include "core/base/parse.h"
#include "core/base/throw_if.h"
#include "nn/tied_weights.h"
#include "nn/weights.h"
#include "parallel/tensor_parallel/join_slices.h"

namespace stagecoach {

namespace {

bool begins_with_any(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return name.starts_with(prefix); });
}

/// Returns what the names of the layers of --weights-except begin with. Throws UsageError for one that `model` has not.
std::vector<std::string> prefixes_except(const TrainingSettings& training, const Sequential& model) {
  std::vector<std::string> prefixes;
  if (training.weights_except.empty()) {
    return prefixes;
  }
  std::vector<std::string> layers;
  for (int i = 0; i < model.size(); ++i) {
    layers.push_back(model.name(i));
  }
  const NamedTensors weights = weights_of(model);
  for (const std::string_view given : split_text(training.weights_except, ',')) {
    const std::string layer(given);
    throw_if<UsageError>(find_tensor(weights, layer).defined(),
                         "--weights-except: expected layers, got the weight {}; give its layer, {}", layer,
                         layer.substr(0, layer.rfind('.')));
    prefixes.push_back(layer + ".");
    throw_if<UsageError>(std::none_of(weights.begin(), weights.end(),
                                      [&](const auto& named) { return named.first.starts_with(prefixes.back()); }),
                         "--weights-except: expected layers with weights, got '{}'; the layers of {} are {}", layer,
                         training.model, fmt::join(layers, ", "));
  }
  return prefixes;
}

/// Throws UsageError if only one of two tied weights is to be loaded.
void require_both_or_none(const TiedWeights::Names& tied, const std::vector<std::string>& except) {
  for (const auto& [first, copy] : tied) {
    throw_if<UsageError>(
        begins_with_any(first, except) != begins_with_any(copy, except),
        "--weights-except: with --tie-head '{}' and '{}' are one matrix; name the layers of both, or of "
        "none",
        first, copy);
  }
}

/// Throws DataError if a file has two values for tied weights.
void require_equal(const TiedWeights::Names& tied, const NamedTensors& loaded, const std::string& file) {
  const std::map<std::string, Tensor> tensors(loaded.begin(), loaded.end());
  for (const auto& [first, copy] : tied) {
    throw_if<DataError>(
        tensors.contains(first) && tensors.at(first).to_vector<float>() != tensors.at(copy).to_vector<float>(),
        "--weights: in '{}' '{}' and '{}' differ, and with --tie-head they are one matrix; leave out --tie-head, or "
        "give "
        "a file in which they are equal",
        file, first, copy);
  }
}

}  // namespace

void load_initial_weights(const TrainingSettings& training, const Dataset& data, Module& mine) {
  if (training.weights.empty()) {
    return;
  }
  const auto whole = make_model_of(training, data);
  whole->materialize(training.seed, Device{DeviceType::meta});
  const TiedWeights::Names tied = tied_names(training);
  const LoadSettings settings{.except = prefixes_except(training, *whole), .tied = tied};
  require_both_or_none(tied, settings.except);
  NamedTensors into = weights_of(mine);
  std::erase_if(into, [&](const auto& named) { return begins_with_any(named.first, settings.except); });
  const auto is_mine = [&](const std::string& name) { return find_tensor(into, name).defined(); };
  const auto is_tied_to_mine = [&](const std::string& name) {
    return std::any_of(tied.begin(), tied.end(), [&](const auto& pair) {
      return (name == pair.first || name == pair.second) && (is_mine(pair.first) || is_mine(pair.second));
    });
  };
  NamedTensors loaded;
  try {
    loaded = load_weights_of(
        training.weights, weights_of(*whole),
        [&](const std::string& name) { return is_mine(name) || is_tied_to_mine(name); }, settings);
  } catch (const DataError& error) {
    throw DataError(fmt::format("--weights: {}", error.what()));
  }
  require_equal(tied, loaded, training.weights);
  std::erase_if(loaded, [&](const auto& named) { return !is_mine(named.first); });
  copy_by_name(cut_slices(loaded, mine.named_slices()), into, "'" + training.weights + "'");
}

}  // namespace stagecoach
