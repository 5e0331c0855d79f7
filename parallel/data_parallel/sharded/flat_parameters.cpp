#include "parallel/data_parallel/sharded/flat_parameters.h"

#include <algorithm>
#include <utility>

#include "core/autograd/grad_mode.h"
#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

// At the start: the unit is made whole, flattened and cut.

FlatParameters::FlatParameters(NamedTensors parameters, const ShardedSettings& settings, const ShardGroups& groups)
    : sharded_(settings.shard),
      compress_(settings.compress),
      parameters_(std::move(parameters)),
      layout_(parameters_, groups.shards()) {
  const NoGrad no_grad;
  flatten(groups.shards().device());
  cut_shard();
  if (trains()) {
    gradients_.push_back(std::make_unique<FlatGradients>(parameters_, layout_, sharded_, compress_));
  }
}

void FlatParameters::add_copy(const std::string& name, Tensor copy) {
  const NoGrad no_grad;
  copy.rebind(parameters_.front().second);
  copies_.emplace_back(name, copy);
  if (trains()) {
    gradients_.push_back(std::make_unique<FlatGradients>(NamedTensors{{name, copy}}, layout_, sharded_, compress_));
  }
}

/// Makes the parameters views of one flat tensor. Where that is freed, their memory is freed before it is allocated.
void FlatParameters::flatten(Device device) {
  if (sharded_ == Sharded::parameters) {
    shard_ = Tensor::zeros({part()}, DType::float32, device);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto [begin, length] = range_in_shard(i);
      const Tensor& parameter = parameters_[i].second;
      if (length > 0) {
        const std::int64_t skipped = layout_.rank * part() + begin - offsets()[i];
        shard_.narrow(begin, length).copy_from(parameter.alias({length}, parameter.offset() + skipped));
      }
    }
    for (const auto& [name, parameter] : parameters_) {
      parameter.storage()->drop_memory();
    }
    weights_ = Tensor::empty(layout_.flat(), DType::float32, device);
  } else {
    weights_ = Tensor::zeros(layout_.flat(), DType::float32, device);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i].second;
      layout_.place(weights_, i, parameter.shape()).copy_from(parameter);
    }
    shard_ = own_part(weights_);
    has_weights_ = true;  // every rank has made the same
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& parameter = parameters_[i].second;
    parameter.rebind(layout_.place(weights_, i, parameter.shape()));
  }
  if (!has_weights_) {
    weights_.storage()->drop_memory();
  }
}

void FlatParameters::cut_shard() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    const auto [begin, length] = range_in_shard(i);
    if (length > 0) {
      const Shape shape = parameter.dims() < 2 ? Shape{length} : Shape{1, length};
      shards_.emplace_back(name, shard_.alias(shape, shard_.offset() + begin));
      shards_.back().second.set_requires_grad(trains());
      whole_of_shards_.push_back(i);
      shard_offsets_.push_back(begin);
    }
  }
}

FlatParameters::Range FlatParameters::range_in_shard(std::size_t i) const {
  const std::int64_t first = layout_.rank * part();
  const std::int64_t begin = std::max(offsets()[i], first);
  return {begin - first, std::min(offsets()[i] + parameters_[i].second.numel(), first + part()) - begin};
}

// Weights: gathered before they are used, freed afterwards.

void FlatParameters::start_gather(CommThread& thread, const ShardGroups& groups) {
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

void FlatParameters::wait_for_weights() {
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

void FlatParameters::free_weights() {
  if (has_weights_ && sharded_ == Sharded::parameters) {
    weights_.storage()->drop_memory();
  }
  has_weights_ = has_weights_ && sharded_ != Sharded::parameters && !trains();
}

// Flat tensors.

Tensor FlatParameters::joined(const std::vector<Tensor>& parts) const {
  const NoGrad no_grad;
  Tensor shard = Tensor::zeros({part()}, weights_.dtype(), weights_.device());
  const std::vector<Tensor> places = parts_of(shard);
  for (std::size_t i = 0; i < places.size(); ++i) {
    Tensor(places[i]).copy_from(parts[i]);
  }
  return shard;
}

std::vector<Tensor> FlatParameters::parts_of(const Tensor& shard) const {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    parts.push_back(shard.alias(shards_[i].second.shape(), shard.offset() + shard_offsets_[i]));
  }
  return parts;
}

Tensor FlatParameters::gathered(const Tensor& shard, const ShardGroups& groups) const {
  const NoGrad no_grad;
  Tensor flat = Tensor::empty(weights_.shape(), weights_.dtype(), weights_.device());
  groups.shards().all_gather_into(flat, shard);
  return flat;
}

NamedTensors FlatParameters::places_in(const Tensor& flat, const std::string& suffix) const {
  NamedTensors places;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    places.emplace_back(name + suffix, layout_.place(flat, i, parameter.shape()));
  }
  return places;
}

void FlatParameters::set_weights(const Tensor& weights) {
  const NoGrad no_grad;
  if (sharded_ == Sharded::parameters) {
    free_weights();
    shard_.copy_from(own_part(weights));
  } else {
    weights_.copy_from(weights);  // the shard is a view of them
    has_weights_ = true;
  }
}

// Gradients.

/// One device adds the gradients of tied parameters in this order, too (nn/tied_weights.h).
void FlatParameters::hand_out_gradients() {
  weights_.storage()->bump_version();  // the update follows: graphs of earlier forwards must not run any more
  Tensor sums;
  for (const auto& some : gradients_) {
    const Tensor more = some->take_sums();
    if (sums.defined()) {
      kernels(sums.device()).add_scaled(more, 1, sums);
    } else {
      sums = more;
    }
  }
  const std::vector<Tensor> parts = parts_of(sums);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].second.set_grad(parts[i]);
  }
}

}  // namespace stagecoach
