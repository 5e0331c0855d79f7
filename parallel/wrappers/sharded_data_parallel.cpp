#include "parallel/wrappers/sharded_data_parallel.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "core/base/phrases.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/data_parallel/sharded/before_backward.h"
#include "parallel/data_parallel/sharded/sharded_norm.h"
#include "parallel/wrappers/share_of_mean.h"

namespace stagecoach {
namespace {

/// Returns the number of layers of each unit: one layer with parameters, and those without that follow it.
std::vector<int> layers_of_units(const Sequential& model) {
  std::vector<int> counts;
  bool has_parameters = false;  // the last unit
  for (int i = 0; i < model.size(); ++i) {
    const bool has = parameter_count(*model.layer(i)) > 0;
    if (counts.empty() || (has && has_parameters)) {
      counts.push_back(0);
      has_parameters = false;
    }
    ++counts.back();
    has_parameters |= has;
  }
  return counts;
}

ShardedSettings checked(const Sequential& model, int ranks, ShardedSettings settings) {
  throw_if<UsageError>(settings.copies < 1 || ranks % settings.copies != 0,
                       "ShardedDataParallel: expected copies of the weights that {} ranks can share evenly, got {}",
                       ranks, settings.copies);
  throw_if<UsageError>(settings.prefetch < 0, "ShardedDataParallel: expected a `prefetch` of 0 or more units, got {}",
                       settings.prefetch);
  throw_if<UsageError>(settings.shard == Sharded::optimizer && settings.accumulation == Accumulation::sharded,
                       "ShardedDataParallel: Accumulation::sharded needs sharded gradients; choose Sharded::gradients "
                       "or Sharded::parameters");
  if (settings.unit_layers.empty()) {
    settings.unit_layers = layers_of_units(model);
  }
  int layers = 0;
  bool fits = true;
  for (const int count : settings.unit_layers) {
    fits = fits && count > 0 && count <= model.size() - layers;
    fits = fits && parameter_count(*model.slice(layers, layers + count)) > 0;
    layers += fits ? count : 0;
  }
  throw_if<UsageError>(!fits || layers == 0 || layers != model.size(),
                       "ShardedDataParallel: expected `unit_layers` of {} in all, each unit with parameters, got '{}'; "
                       "give as many layers as the model has",
                       counted(model.size(), "layer"), fmt::join(settings.unit_layers, ","));
  return settings;
}

}  // namespace

ShardedDataParallel::ShardedDataParallel(const Sequential& model, Communicator& comm, ShardedSettings settings)
    : comm_(comm),
      settings_(checked(model, comm.size(), std::move(settings))),
      groups_(comm, settings_.copies),
      comm_thread_(comm) {
  comm_thread_
      .submit("split ranks",
              [this](Communicator& own) { comm_groups_ = std::make_unique<ShardGroups>(own, settings_.copies); })
      .wait();
  int begin = 0;
  NamedTensors parameters;
  for (const int count : settings_.unit_layers) {
    units_.push_back(std::make_unique<ShardedUnit>(model.slice(begin, begin + count), settings_, groups_));
    begin += count;
    const NamedTensors& more = units_.back()->parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  require_same_tensors(parameters, comm);
  role_ = {.layers = layers_.owners(model, settings_.unit_layers),
           .replica_of = groups_.shards().rank(),  // of the first copy
           .splits_losses = true,
           .sharded = &layers_};
}

NamedTensors ShardedDataParallel::shards() const {
  NamedTensors all;
  for (const auto& unit : units_) {
    all.insert(all.end(), unit->shards().begin(), unit->shards().end());
  }
  return all;
}

/// Starts to gather the weights of a unit, and of the next `prefetch` units in this direction.
void ShardedDataParallel::gather_from(int first, int direction) {
  for (int ahead = 0; ahead <= settings_.prefetch; ++ahead) {
    const int next = first + ahead * direction;
    if (next >= 0 && next < unit_count()) {
      unit(next).start_gather(comm_thread_, *comm_groups_);
    }
  }
}

/// A forward between a backward and the update would gather weights that are about to be out of date.
void ShardedDataParallel::require_cleared_gradients() const {
  for (const auto& [name, shard] : shards()) {
    STAGECOACH_CHECK(!shard.grad().defined(),
                     "ShardedDataParallel: '{}' still has the last step's gradient; call the optimizer's step() and "
                     "zero_grad() after each backward()",
                     name);
  }
}

Tensor ShardedDataParallel::forward(const Tensor& x) {
  STAGECOACH_CHECK(x.defined() && x.device() == comm_.device(),
                   "ShardedDataParallel: expected an input on this rank's device {}, got {}; use x.to(rank.device)",
                   to_string(comm_.device()), describe(x));
  require_cleared_gradients();
  Tensor y = x;
  for (int u = 0; u < unit_count(); ++u) {
    gather_from(u, 1);
    unit(u).wait_for_weights();
    y = unit(u).forward(y);
    const bool is_needed_next = u + 1 == unit_count() && y.requires_grad();  // by the backward
    if (reshards() && !is_needed_next) {
      unit(u).free_weights();
    }
    y = before_backward(y, [this, u] { reach(u); });
  }
  return y;
}

void ShardedDataParallel::run_backward(const Tensor& loss, std::int64_t samples, bool ends_step) {
  STAGECOACH_CHECK(!has_failed_,
                   "ShardedDataParallel: an earlier backward failed, so the gradients of the ranks differ; end the "
                   "program and resume from a checkpoint");
  require_cleared_gradients();
  const Tensor share = share_of_mean("ShardedDataParallel", loss, samples);
  ends_step_ = ends_step;
  reached_ = unit_count();
  has_failed_ = true;  // unless all of the following is done
  is_running_ = true;
  stagecoach::backward(loss, share);
  reach(-1);
  is_running_ = false;
  while (!reducing_.empty()) {
    unit(reducing_.front()).finish_reduction();
    reducing_.pop_front();
  }
  if (ends_step) {
    for (const auto& unit : units_) {
      unit->hand_out_gradients();
    }
  }
  has_failed_ = false;
}

/// Ends the backward of the units after `index`, and begins that of unit `index`; -1 is the end of the backward.
void ShardedDataParallel::reach(int index) {
  STAGECOACH_CHECK(is_running_,
                   "ShardedDataParallel: expected a backward by backward() or accumulate(), got another one");
  const int last = std::min(std::exchange(reached_, index), unit_count() - 1);  // to end
  for (int u = last; u > index && (ends_step_ || reshards()); --u) {
    unit(u).free_weights();
  }
  if (index >= 0) {
    gather_from(index, -1);  // before the reductions, as the backward waits for weights only
  }
  for (int u = last; u > index; --u) {
    reduce(u);
  }
  if (index >= 0) {
    unit(index).wait_for_weights();
  }
}

/// Starts the reduction of a unit's gradients. Unless whole gradients stay anyway, waits for the one before.
void ShardedDataParallel::reduce(int index) {
  if (!ends_step_ && settings_.accumulation == Accumulation::whole) {
    return;
  }
  unit(index).start_reduction(comm_thread_, *comm_groups_);
  reducing_.push_back(index);
  if (settings_.shard != Sharded::optimizer && reducing_.size() > 1) {
    unit(reducing_.front()).finish_reduction();
    reducing_.pop_front();
  }
}

void ShardedDataParallel::sum_squares_for(Optimizer& optimizer) const {
  optimizer.sum_squares_with([this](const NamedTensors& gradients) { return sums_of_squares(gradients); });
}

/// Returns the sum of squares of each whole parameter's gradient, given those of shards().
std::vector<double> ShardedDataParallel::sums_of_squares(const NamedTensors& gradients) const {
  auto next = gradients.begin();
  std::vector<double> sums;
  for (const auto& unit : units_) {
    std::vector<Tensor> mine;
    for (std::size_t i = 0; i < unit->shards().size(); ++i) {
      mine.push_back((next++)->second);
    }
    const std::vector<double> of_unit = stagecoach::sums_of_squares(*unit, mine, groups_);
    sums.insert(sums.end(), of_unit.begin(), of_unit.end());
  }
  return sums;
}

void ShardedDataParallel::load_weights(const std::string& path) {
  NamedTensors all;
  for (const auto& unit : units_) {
    for (const NamedTensors& some : {unit->parameters(), unit->buffers()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  const auto is_mine = [this](const std::string& name) {
    return is_of_rank(role_.layers, groups_.shards().rank(), name);
  };
  layers_.take_weights(load_weights_of(path, all, is_mine), path);
}

void ShardedDataParallel::for_each_unit(const std::function<void(const NamedTensors& parameters)>& visit) {
  for (const auto& unit : units_) {
    const bool had_weights = unit->has_weights();
    unit->start_gather(comm_thread_, *comm_groups_);
    unit->wait_for_weights();
    visit(unit->parameters());
    if (!had_weights) {
      unit->free_weights();
    }
  }
}

}  // namespace stagecoach
