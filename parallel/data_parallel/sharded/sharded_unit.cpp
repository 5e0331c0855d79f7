#include "parallel/data_parallel/sharded/sharded_unit.h"

#include <algorithm>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/kernels/kernels.h"
#include "parallel/data_parallel/same_model.h"

namespace stagecoach {

namespace {

Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor other = Tensor::empty(tensor.shape(), dtype, tensor.device());
  kernels(tensor.device()).convert(tensor, other);
  return other;
}

}  // namespace

// At the start: the unit is made whole, flattened and cut.

ShardedUnit::ShardedUnit(std::shared_ptr<Sequential> layers, const ShardedSettings& settings, const ShardGroups& groups)
    : layers_(std::move(layers)),
      sharded_(settings.shard),
      compress_(settings.compress),
      rank_(groups.shards().rank()) {
  const Communicator& comm = groups.shards();
  const NoGrad no_grad;
  layers_->materialize(settings.seed, comm.device());
  parameters_ = without_repeats(layers_->named_parameters());
  flatten(comm.size(), comm.device());
  cut_shard();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.set_gradient_hook([this, i](Tensor&) { take_gradient(i); });
  }
}

ShardedUnit::~ShardedUnit() {
  for (auto& [name, parameter] : parameters_) {
    parameter.set_gradient_hook({});
  }
}

/// Makes the parameters views of one flat tensor. Where that is freed, their memory is freed before it is allocated.
void ShardedUnit::flatten(int ranks, Device device) {
  std::int64_t count = 0;
  for (const auto& [name, parameter] : parameters_) {
    offsets_.push_back(count);
    count += parameter.numel();
  }
  part_ = (count + ranks - 1) / ranks;
  const Shape flat{ranks * part_};
  if (sharded_ == Sharded::parameters) {
    shard_ = Tensor::zeros({part_}, DType::float32, device);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto [begin, length] = range_in_shard(i);
      const Tensor& parameter = parameters_[i].second;
      if (length > 0) {
        const std::int64_t skipped = rank_ * part_ + begin - offsets_[i];
        shard_.narrow(begin, length).copy_from(parameter.alias({length}, parameter.offset() + skipped));
      }
    }
    for (const auto& [name, parameter] : parameters_) {
      parameter.storage()->drop_memory();
    }
    weights_ = Tensor::empty(flat, DType::float32, device);
  } else {
    weights_ = Tensor::zeros(flat, DType::float32, device);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      place_of(weights_, i).copy_from(parameters_[i].second);
    }
    shard_ = own_part(weights_);
    has_weights_ = true;  // every rank has made the same
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.rebind(place_of(weights_, i));
  }
  if (!has_weights_) {
    weights_.storage()->drop_memory();
  }
}

void ShardedUnit::cut_shard() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const auto [begin, length] = range_in_shard(i);
    if (length > 0) {
      const Shape shape = parameter.dims() < 2 ? Shape{length} : Shape{1, length};
      shards_.emplace_back(name, shard_.alias(shape, shard_.offset() + begin));
      shards_.back().second.set_requires_grad(true);
      whole_of_shards_.push_back(i);
      shard_offsets_.push_back(begin);
    }
  }
}

ShardedUnit::Range ShardedUnit::range_in_shard(std::size_t i) const {
  const std::int64_t first = rank_ * part_;
  const std::int64_t begin = std::max(offsets_[i], first);
  return {begin - first, std::min(offsets_[i] + parameters_[i].second.numel(), first + part_) - begin};
}

Tensor ShardedUnit::place_of(const Tensor& flat, std::size_t i) const {
  return flat.alias(parameters_[i].second.shape(), offsets_[i]);
}

// Weights: gathered before they are used, freed afterwards.

void ShardedUnit::start_gather(CommThread& thread, const ShardGroups& groups) {
  if (has_weights_ || gather_) {
    return;
  }
  const NoGrad no_grad;
  gathering_ = sharded_ == Sharded::parameters
                   ? Tensor::empty(weights_.shape(), weights_.dtype(), weights_.device())  // freed with the unit
                   : weights_;
  gather_ = thread.submit("gather weights", [&groups, whole = gathering_, shard = shard_](Communicator&) mutable {
    groups.shards().all_gather_into(whole, shard);
  });
}

void ShardedUnit::wait_for_weights() {
  if (has_weights_) {
    return;
  }
  STAGECOACH_CHECK(gather_, "sharded unit: expected a gather of the weights of '{}', got none; call start_gather()",
                   parameters_.front().first);
  gather_->wait();
  gather_.reset();
  const Tensor gathered = std::exchange(gathering_, {});
  if (sharded_ == Sharded::parameters) {
    weights_.storage()->take_memory(*gathered.storage());
  }
  has_weights_ = true;
}

void ShardedUnit::free_weights() {
  if (has_weights_ && sharded_ == Sharded::parameters) {
    weights_.storage()->drop_memory();
  }
  has_weights_ = false;
}

// Flat tensors.

Tensor ShardedUnit::joined(const std::vector<Tensor>& parts) const {
  const NoGrad no_grad;
  Tensor shard = Tensor::zeros({part_}, weights_.dtype(), weights_.device());
  const std::vector<Tensor> places = parts_of(shard);
  for (std::size_t i = 0; i < places.size(); ++i) {
    Tensor(places[i]).copy_from(parts[i]);
  }
  return shard;
}

std::vector<Tensor> ShardedUnit::parts_of(const Tensor& shard) const {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    parts.push_back(shard.alias(shards_[i].second.shape(), shard.offset() + shard_offsets_[i]));
  }
  return parts;
}

Tensor ShardedUnit::gathered(const Tensor& shard, const ShardGroups& groups) const {
  const NoGrad no_grad;
  Tensor flat = Tensor::empty(weights_.shape(), weights_.dtype(), weights_.device());
  groups.shards().all_gather_into(flat, shard);
  return flat;
}

NamedTensors ShardedUnit::places_in(const Tensor& flat, const std::string& suffix) const {
  NamedTensors places;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    places.emplace_back(parameters_[i].first + suffix, place_of(flat, i));
  }
  return places;
}

void ShardedUnit::set_weights(const Tensor& weights) {
  const NoGrad no_grad;
  if (sharded_ == Sharded::parameters) {
    free_weights();
    shard_.copy_from(own_part(weights));
  } else {
    weights_.copy_from(weights);  // the shard is a view of them
    has_weights_ = true;
  }
}

// Gradients: whole, for this rank's samples, until they are summed over the ranks.

/// Moves a gradient to its place, when it is complete; later backwards of the step accumulate there.
void ShardedUnit::take_gradient(std::size_t i) {
  if (!gradients_.defined()) {
    gradients_ = Tensor::empty(weights_.shape(), weights_.dtype(), weights_.device());
    const std::int64_t end = offsets_.back() + parameters_.back().second.numel();
    gradients_.narrow(end, gradients_.numel() - end).fill(0);
  }
  Tensor parameter = parameters_[i].second;
  if (parameter.grad().storage() != gradients_.storage()) {
    Tensor view = place_of(gradients_, i);
    view.copy_from(parameter.grad());
    parameter.set_grad(view);
  }
}

void ShardedUnit::start_reduction(CommThread& thread, const ShardGroups& groups) {
  for (const auto& [name, parameter] : parameters_) {
    STAGECOACH_CHECK(parameter.grad().defined(),
                     "sharded unit: expected a gradient for every parameter, got none for '{}', on which this step's "
                     "loss does not depend; leave out its layer",
                     name);
  }
  reduction_ = thread.submit("reduce gradients", [this, &groups](Communicator&) { reduce(groups); });
  if (groups.shards().clock().kind() == ClockKind::modelled) {
    reduction_->join();  // in real time only: so the memory of the sums counts from here on in every run
  }
}

/// The sums are added in rank order, as one device adds the gradients of the ranks' parts.
void ShardedUnit::reduce(const ShardGroups& groups) {
  const bool in_half = compress_ == CompressionKind::half;
  Tensor sums = groups.shards().reduce_scatter(in_half ? converted(gradients_, DType::float16) : gradients_);  // [part]
  if (groups.copies() != nullptr) {
    groups.copies()->all_reduce(sums);
  }
  if (in_half) {
    sums = converted(sums, gradients_.dtype());
  }
  if (sharded_ == Sharded::optimizer) {  // the whole gradients stay, with the sums in their place
    sums_ = own_part(gradients_);
    sums_.copy_from(sums);
  } else if (sums_.defined()) {
    kernels(sums.device()).add_scaled(sums, 1, sums_);
  } else {
    sums_ = sums;
  }
}

void ShardedUnit::finish_reduction() {
  reduction_->wait();
  reduction_.reset();
  for (auto& [name, parameter] : parameters_) {
    parameter.zero_grad();
  }
  gradients_ = {};
}

void ShardedUnit::hand_out_gradients() {
  weights_.storage()->bump_version();  // the update follows: graphs of earlier forwards must not run any more
  const std::vector<Tensor> sums = parts_of(sums_);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].second.set_grad(sums[i]);
  }
  sums_ = {};
}

}  // namespace stagecoach
