#include "parallel/data_parallel/sharded/flat_gradients.h"

#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {

namespace {

Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor other = Tensor::empty(tensor.shape(), dtype, tensor.device());
  kernels(tensor.device()).convert(tensor, other);
  return other;
}

}  // namespace

FlatLayout::FlatLayout(const NamedTensors& parameters, const Communicator& comm)
    : ranks(comm.size()), rank(comm.rank()) {
  for (const auto& [name, parameter] : parameters) {
    offsets.push_back(used);
    used += parameter.numel();
  }
  part = (used + ranks - 1) / ranks;
}

FlatGradients::FlatGradients(NamedTensors parameters, const FlatLayout& layout, Sharded sharded,
                             CompressionKind compress)
    : parameters_(std::move(parameters)), layout_(layout), sharded_(sharded), compress_(compress) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.set_gradient_hook([this, i](Tensor&) { take(i); });
  }
}

FlatGradients::~FlatGradients() {
  for (auto& [name, parameter] : parameters_) {
    parameter.set_gradient_hook({});
  }
}

/// Moves a gradient to its place, when it is complete; later backwards of the step accumulate there.
void FlatGradients::take(std::size_t i) {
  Tensor parameter = parameters_[i].second;
  if (!whole_.defined()) {
    whole_ = Tensor::empty(layout_.flat(), parameter.dtype(), parameter.device());
    whole_.narrow(layout_.used, whole_.numel() - layout_.used).fill(0);
  }
  if (parameter.grad().storage() != whole_.storage()) {
    Tensor view = layout_.place(whole_, i, parameter.shape());
    view.copy_from(parameter.grad());
    parameter.set_grad(view);
  }
}

void FlatGradients::start_reduction(CommThread& thread, const ShardGroups& groups) {
  for (const auto& [name, parameter] : parameters_) {
    STAGECOACH_CHECK(parameter.grad().defined(),
                     "sharded unit: expected a gradient for every parameter, got none for '{}', on which this step's "
                     "loss does not depend; leave out its layer, or freeze it",
                     name);
  }
  reduction_ = thread.submit("reduce gradients", [this, &groups](Communicator&) { reduce(groups); });
  if (groups.shards().clock().kind() == ClockKind::modelled) {
    reduction_->join();  // in real time only: so the memory of the sums counts from here on in every run
  }
}

/// The sums are added in rank order, as one device adds the gradients of the ranks' parts.
void FlatGradients::reduce(const ShardGroups& groups) {
  const bool in_half = compress_ == CompressionKind::half;
  Tensor sums = groups.shards().reduce_scatter(in_half ? converted(whole_, DType::float16) : whole_);  // [part]
  if (groups.copies() != nullptr) {
    groups.copies()->all_reduce(sums);
  }
  if (in_half) {
    sums = converted(sums, whole_.dtype());
  }
  if (sharded_ == Sharded::optimizer) {  // the whole gradients stay, with the sums in their place
    sums_ = layout_.own_part(whole_);
    sums_.copy_from(sums);
  } else if (sums_.defined()) {
    kernels(sums.device()).add_scaled(sums, 1, sums_);
  } else {
    sums_ = sums;
  }
}

void FlatGradients::finish_reduction() {
  reduction_->wait();
  reduction_.reset();
  for (auto& [name, parameter] : parameters_) {
    parameter.zero_grad();
  }
  whole_ = {};
}

}  // namespace stagecoach
