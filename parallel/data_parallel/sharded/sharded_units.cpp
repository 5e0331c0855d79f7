#include "parallel/data_parallel/sharded/sharded_units.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// Returns the first parameter of which `name` is the copy, or null.
const std::string* first_of(const TiedWeights::Names& tied, const std::string& name) {
  const auto pair = std::find_if(tied.begin(), tied.end(), [&](const auto& names) { return names.second == name; });
  return pair == tied.end() ? nullptr : &pair->first;
}

bool has_copies(const TiedWeights::Names& tied, const std::string& name) {
  return std::any_of(tied.begin(), tied.end(), [&](const auto& names) { return names.first == name; });
}

/// Returns whether layers `begin` to `end` have parameters other than copies.
bool has_parameters(const Sequential& model, int begin, int end, const TiedWeights::Names& tied) {
  const auto shapes = model.slice(begin, end)->parameter_shapes();
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const auto& named) { return first_of(tied, named.first) == nullptr; });
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
    const bool is_alone = first_of(settings.tied, first) == nullptr && *first_of(settings.tied, copy) == first;
    throw_if<UsageError>(!fits || !is_alone,
                         "ShardedDataParallel: expected tied pairs of two parameters of one shape, both trained or "
                         "both frozen, and no copy of a copy, got '{}' and '{}'; parameter_shapes() lists them",
                         first, copy);
  }
}

/// Makes the units, one after the other.
class Maker {
 public:
  Maker(const ShardedSettings& settings, const ShardGroups& groups) : settings_(settings), groups_(groups) {}

  void add(std::shared_ptr<Sequential> layers) {
    layers->materialize(settings_.seed, groups_.shards().device());
    made_.units.push_back({std::move(layers)});
    NamedTensors trained;
    NamedTensors frozen;
    for (auto& [name, parameter] : without_repeats(made_.units.back().layers->named_parameters())) {
      parameter.set_requires_grad(settings_.trains(name));
      trains_ |= parameter.requires_grad();
      if (first_of(settings_.tied, name) != nullptr) {
        parameter.storage()->drop_memory();  // it gets that of the first one
        copies_[name] = {parameter, made_.units.size() - 1};
        continue;
      }
      if (parameter.requires_grad()) {
        made_.trained.push_back(name);
      }
      if (has_copies(settings_.tied, name)) {
        firsts_[name] = add_flat({{name, parameter}});
      } else {
        (parameter.requires_grad() ? trained : frozen).emplace_back(name, parameter);
      }
    }
    for (NamedTensors& parameters : std::vector{std::move(trained), std::move(frozen)}) {
      if (!parameters.empty()) {
        add_flat(std::move(parameters));
      }
    }
    made_.first_trained += trains_ ? 0 : 1;
  }

  ShardedUnits finish() {
    std::map<FlatParameters*, std::size_t> counts;
    for (const auto& [first, name] : settings_.tied) {
      const Copy& copy = copies_.at(name);
      FlatParameters* flat = firsts_.at(first);
      flat->add_copy(name, copy.parameter);
      need(made_.units[copy.unit], flat, ++counts[flat]);
    }
    return std::move(made_);
  }

 private:
  struct Copy {
    Tensor parameter;
    std::size_t unit;
  };

  FlatParameters* add_flat(NamedTensors parameters) {
    made_.flats.push_back(std::make_unique<FlatParameters>(std::move(parameters), settings_, groups_));
    need(made_.units.back(), made_.flats.back().get(), 0);
    return made_.flats.back().get();
  }
  static void need(ShardedUnit& unit, FlatParameters* flat, std::size_t copy) {
    if (std::find(unit.needs.begin(), unit.needs.end(), flat) == unit.needs.end()) {
      unit.needs.push_back(flat);
    }
    if (flat->trains()) {
      unit.gradients.push_back(&flat->gradients(copy));
    }
  }

  const ShardedSettings& settings_;
  const ShardGroups& groups_;
  ShardedUnits made_;
  std::map<std::string, FlatParameters*> firsts_;  // of tied parameters
  std::map<std::string, Copy> copies_;
  bool trains_ = false;  // a unit so far
};

const char* text_of(Sharded sharded) {
  return sharded == Sharded::optimizer ? "optimizer" : sharded == Sharded::gradients ? "gradients" : "parameters";
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

ShardedUnits make_sharded_units(const Sequential& model, const ShardedSettings& settings, const ShardGroups& groups) {
  const NoGrad no_grad;
  Maker maker(settings, groups);
  int begin = 0;
  for (const int count : settings.unit_layers) {
    maker.add(model.slice(begin, begin + count));
    begin += count;
  }
  return maker.finish();
}

}  // namespace stagecoach
