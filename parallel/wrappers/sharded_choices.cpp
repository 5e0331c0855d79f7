#include "parallel/wrappers/sharded_choices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

bool is_copy(const TiedWeights::Names& tied, const std::string& name) {
  return std::any_of(tied.begin(), tied.end(), [&](const auto& names) { return names.second == name; });
}

/// Returns whether layers `begin` to `end` have parameters other than copies.
bool has_parameters(const Sequential& model, int begin, int end, const TiedWeights::Names& tied) {
  const auto shapes = model.slice(begin, end)->parameter_shapes();
  return std::any_of(shapes.begin(), shapes.end(), [&](const auto& named) { return !is_copy(tied, named.first); });
}

/// Returns the number of layers of each unit: one layer with parameters, and those without that follow it.
std::vector<int> layers_of_units(const Sequential& model, const TiedWeights::Names& tied) {
  std::vector<int> counts;
  bool is_begun = false;  // the last unit has parameters
  for (int i = 0; i < model.size(); ++i) {
    const bool has = has_parameters(model, i, i + 1, tied);
    if (counts.empty() || (has && is_begun)) {
      counts.push_back(0);
      is_begun = false;
    }
    ++counts.back();
    is_begun |= has;
  }
  return counts;
}

void require_tied(const Sequential& model, const ShardedSettings& settings) {
  const auto list = model.parameter_shapes();
  const std::map<std::string, Shape> shapes(list.begin(), list.end());
  for (const auto& [first, copy] : settings.tied) {
    const bool fits = shapes.contains(first) && shapes.contains(copy) && shapes.at(first) == shapes.at(copy) &&
                      settings.trains(first) == settings.trains(copy);
    const auto count = std::count_if(settings.tied.begin(), settings.tied.end(),
                                     [&, name = copy](const auto& names) { return names.second == name; });
    const bool is_alone = !is_copy(settings.tied, first) && count == 1;
    throw_if<UsageError>(!fits || !is_alone,
                         "ShardedDataParallel: expected tied pairs of two parameters of one shape, both trained or "
                         "both frozen, and no copy of a copy, got '{}' and '{}'; parameter_shapes() lists them",
                         first, copy);
  }
}

const char* text_of(Sharded sharded) {
  return sharded == Sharded::optimizer ? "optimizer" : sharded == Sharded::gradients ? "gradients" : "parameters";
}

/// Returns one line for each parameter and setting, which must be the same on all ranks.
std::string lines_of(const Sequential& model, const ShardedSettings& settings) {
  std::string lines;
  for (const auto& [name, shape] : model.parameter_shapes()) {
    lines += fmt::format("'{}' {}{}\n", name, to_string(shape), settings.trains(name) ? "" : " frozen");
  }
  for (const auto& [first, copy] : settings.tied) {
    lines += fmt::format("'{}' tied to '{}'\n", copy, first);
  }
  return lines + fmt::format(
                     "unit_layers {}\nshard {}\nreshard_after_forward {}\nprefetch {}\naccumulation {}\ncompress {}\n"
                     "copies {}\nseed {}\n",
                     fmt::join(settings.unit_layers, ","), text_of(settings.shard), settings.reshard_after_forward,
                     settings.prefetch, settings.accumulation == Accumulation::whole ? "whole" : "sharded",
                     settings.compress == CompressionKind::none ? "none" : "half", settings.copies, settings.seed);
}

}  // namespace

ShardedSettings with_units(const Sequential& model, ShardedSettings settings) {
  require_tied(model, settings);
  if (settings.unit_layers.empty()) {
    settings.unit_layers = layers_of_units(model, settings.tied);
  }
  int layers = 0;
  bool fits = true;
  for (const int count : settings.unit_layers) {
    fits = fits && count > 0 && count <= model.size() - layers;
    fits = fits && has_parameters(model, layers, layers + count, settings.tied);
    layers += fits ? count : 0;
  }
  throw_if<UsageError>(!fits || layers == 0 || layers != model.size(),
                       "ShardedDataParallel: expected `unit_layers` of {} in all, each unit with parameters, got '{}'; "
                       "give as many layers as the model has{}",
                       counted(model.size(), "layer"), fmt::join(settings.unit_layers, ","),
                       settings.tied.empty() ? "" : ", and a tied copy no unit of its own");
  settings.prefetch = std::min(settings.prefetch, static_cast<int>(settings.unit_layers.size()));
  return settings;
}

ShardedSettings checked_settings(const Sequential& model, Communicator& comm, ShardedSettings settings) {
  const int ranks = comm.size();
  throw_if<UsageError>(settings.copies < 1 || ranks % settings.copies != 0,
                       "ShardedDataParallel: expected copies of the weights that {} ranks can share evenly, got {}",
                       ranks, settings.copies);
  throw_if<UsageError>(settings.prefetch < 0, "ShardedDataParallel: expected a `prefetch` of 0 or more units, got {}",
                       settings.prefetch);
  throw_if<UsageError>(settings.shard == Sharded::optimizer && settings.accumulation == Accumulation::sharded,
                       "ShardedDataParallel: Accumulation::sharded needs sharded gradients; choose Sharded::gradients "
                       "or Sharded::parameters");
  settings = with_units(model, std::move(settings));
  require_same_lines(lines_of(model, settings), comm);
  return settings;
}

}  // namespace stagecoach
