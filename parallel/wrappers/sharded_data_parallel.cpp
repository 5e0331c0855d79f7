#include "parallel/wrappers/sharded_data_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "core/autograd/backward.h"
#include "core/base/error.h"
#include "core/base/throw_if.h"
#include "parallel/data_parallel/sharded/before_backward.h"
#include "parallel/data_parallel/sharded/sharded_norm.h"
#include "parallel/wrappers/sharded_choices.h"
#include "parallel/wrappers/share_of_mean.h"

namespace stagecoach {
namespace {

bool has_same_values(const Tensor& a, const Tensor& b) { return a.to_vector<float>() == b.to_vector<float>(); }

}  // namespace

ShardedDataParallel::ShardedDataParallel(const Sequential& model, Communicator& comm, ShardedSettings settings)
    : comm_(comm),
      settings_(checked_settings(model, comm, std::move(settings))),
      groups_(comm, settings_.copies),
      units_(make_sharded_units(model, settings_, groups_)),
      layers_(model, settings_.unit_layers, units_, groups_),
      comm_thread_(comm) {
  comm_thread_
      .submit("split ranks",
              [this](Communicator& own) { comm_groups_ = std::make_unique<ShardGroups>(own, settings_.copies); })
      .wait();
  role_ = {.layers = layers_.owners(),
           .replica_of = groups_.shards().rank(),  // of the first copy
           .splits_losses = true,
           .sharded = &layers_};
}

NamedTensors ShardedDataParallel::shards() const {
  NamedTensors all;
  for (const auto& flat : units_.flats) {
    if (flat->trains()) {
      all.insert(all.end(), flat->shards().begin(), flat->shards().end());
    }
  }
  return all;
}

/// Starts to gather the weights of a unit, and of the next `prefetch` units in this direction. A backward ends at the
/// first unit that trains, unless the input needs a gradient.
void ShardedDataParallel::gather_from(int first, int direction) {
  const int last = first + settings_.prefetch * direction;
  const int end =
      direction > 0 ? std::min(last, unit_count() - 1) : std::max(last, std::min(first, units_.first_trained));
  for (int next = first; (end - next) * direction >= 0; next += direction) {
    for (FlatParameters* flat : unit(next).needs) {
      flat->start_gather(comm_thread_, *comm_groups_);
    }
  }
}

/// Frees the weights of a unit, except those that the next units in this direction need: as many as are gathered
/// ahead, or, where weights are not gathered again in this direction, all.
void ShardedDataParallel::free_weights(int index, int direction) {
  const int ahead = reshards() ? 1 + settings_.prefetch : unit_count();
  const auto is_needed = [&](const FlatParameters* flat) {
    for (int u = index + direction; std::abs(u - index) <= ahead && u >= 0 && u < unit_count(); u += direction) {
      const auto& needs = unit(u).needs;
      if (std::find(needs.begin(), needs.end(), flat) != needs.end()) {
        return true;
      }
    }
    return false;
  };
  for (FlatParameters* flat : unit(index).needs) {
    if (!is_needed(flat)) {
      flat->free_weights();
    }
  }
}

void ShardedDataParallel::wait_for_weights(int index) {
  for (FlatParameters* flat : unit(index).needs) {
    flat->wait_for_weights();
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
    wait_for_weights(u);
    y = unit(u).layers->forward(y);
    const bool is_needed_next = u + 1 == unit_count() && y.requires_grad();  // by the backward
    if (reshards() && !is_needed_next) {
      free_weights(u, 1);
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
    finish_reduction();
  }
  if (ends_step) {
    for (const auto& flat : units_.flats) {
      if (flat->trains()) {
        flat->hand_out_gradients();
      }
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
    free_weights(u, -1);
  }
  if (index >= 0) {
    gather_from(index, -1);  // before the reductions, as the backward waits for weights only
  }
  for (int u = last; u > index; --u) {
    reduce(u);
  }
  if (index >= 0) {
    wait_for_weights(index);
  }
}

/// Starts the reduction of a unit's gradients. Unless whole gradients stay anyway, waits for the one before.
void ShardedDataParallel::reduce(int index) {
  const std::vector<FlatGradients*>& gradients = unit(index).gradients;
  if (gradients.empty() || (!ends_step_ && settings_.accumulation == Accumulation::whole)) {
    return;
  }
  for (FlatGradients* some : gradients) {
    some->start_reduction(comm_thread_, *comm_groups_);
  }
  reducing_.push_back(index);
  if (settings_.shard != Sharded::optimizer && reducing_.size() > 1) {
    finish_reduction();
  }
}

/// Waits for the earliest reduction.
void ShardedDataParallel::finish_reduction() {
  for (FlatGradients* some : unit(reducing_.front()).gradients) {
    some->finish_reduction();
  }
  reducing_.pop_front();
}

void ShardedDataParallel::sum_squares_for(Optimizer& optimizer) const {
  optimizer.sum_squares_with([this](const NamedTensors& gradients) { return sums_of_squares(gradients); });
}

/// Returns the sum of squares of each whole parameter's gradient in the model's order, given those of shards().
std::vector<double> ShardedDataParallel::sums_of_squares(const NamedTensors& gradients) const {
  auto next = gradients.begin();
  std::map<std::string, double> sums;
  for (const auto& flat : units_.flats) {
    std::vector<Tensor> mine;
    for (std::size_t i = 0; flat->trains() && i < flat->shards().size(); ++i) {
      mine.push_back((next++)->second);
    }
    const std::vector<double> some =
        flat->trains() ? stagecoach::sums_of_squares(*flat, mine, groups_) : std::vector<double>();
    for (std::size_t i = 0; i < some.size(); ++i) {
      sums[flat->parameters()[i].first] = some[i];
    }
  }
  std::vector<double> ordered;
  for (const std::string& name : units_.trained) {
    ordered.push_back(sums.at(name));
  }
  return ordered;
}

void ShardedDataParallel::load_weights(const std::string& path) {
  NamedTensors all;
  for (const ShardedUnit& unit : units_.units) {
    const NamedTensors some = weights_of(*unit.layers);
    all.insert(all.end(), some.begin(), some.end());
  }
  const auto is_mine = [this](const std::string& name) {
    return is_of_rank(role_.layers, groups_.shards().rank(), name);
  };
  const auto is_tied_to_mine = [&](const std::string& name) {
    return std::any_of(settings_.tied.begin(), settings_.tied.end(),
                       [&](const auto& pair) { return pair.second == name && is_mine(pair.first); });
  };
  const NamedTensors mine =
      load_weights_of(path, all, [&](const std::string& name) { return is_mine(name) || is_tied_to_mine(name); },
                      {.tied = settings_.tied});
  for (const auto& [first, copy] : settings_.tied) {
    throw_if<DataError>(
        is_mine(first) && !has_same_values(find_tensor(mine, first), find_tensor(mine, copy)),
        "'{}': expected equal values of '{}' and '{}', which are tied, got others; give a file in which "
        "they are equal, or do not tie them",
        path, first, copy);
  }
  layers_.take_weights(mine, path);
}

void ShardedDataParallel::for_each_unit(const std::function<void(const NamedTensors& parameters)>& visit) {
  for (const auto& flat : units_.flats) {
    const bool had_weights = flat->has_weights();
    flat->start_gather(comm_thread_, *comm_groups_);
    flat->wait_for_weights();
    visit(flat->parameters());
    if (!had_weights) {
      flat->free_weights();
    }
  }
}

}  // namespace stagecoach
