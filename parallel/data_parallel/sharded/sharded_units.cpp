#include "parallel/data_parallel/sharded/sharded_units.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {
namespace {

/// Makes the units, one after the other.
class Maker {
 public:
  Maker(const ShardedSettings& settings, const ShardGroups& groups) : settings_(settings), groups_(groups) {
    for (const auto& [first, copy] : settings.tied) {
      firsts_[first] = nullptr;
      copies_[copy] = {};
    }
  }

  void add(std::shared_ptr<Sequential> layers) {
    layers->materialize(settings_.seed, groups_.shards().device());
    made_.units.push_back({std::move(layers)});
    NamedTensors trained;
    NamedTensors frozen;
    for (auto& [name, parameter] : without_repeats(made_.units.back().layers->named_parameters())) {
      parameter.set_requires_grad(settings_.trains(name));
      trains_ |= parameter.requires_grad();
      if (const auto copy = copies_.find(name); copy != copies_.end()) {
        parameter.storage()->drop_memory();  // it gets that of the first one
        copy->second = {parameter, made_.units.size() - 1};
        continue;
      }
      if (parameter.requires_grad()) {
        made_.trained.push_back(name);
      }
      if (const auto first = firsts_.find(name); first != firsts_.end()) {
        first->second = add_flat({{name, parameter}});
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
    std::size_t unit = 0;
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

}  // namespace

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
