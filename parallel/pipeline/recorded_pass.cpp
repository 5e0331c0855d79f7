#include "parallel/pipeline/recorded_pass.h"

#include <algorithm>

namespace stagecoach {
namespace {

/// Overwrites the input of a recording. That is no change of a saved tensor: what is computed from it is replayed too.
void refill(Tensor& input, const Tensor& source) {
  if (input.defined()) {
    input.borrowed().copy_from(source);
  } else if (source.defined()) {
    input = source.clone();
  }
}

bool same_memory(const Tensor& a, const Tensor& b) { return a.storage()->block() == b.storage()->block(); }

}  // namespace

bool RecordedInput::reads(const Tensor& tensor) const { return is_in_place() && same_memory(tensor, tensor_); }

bool RecordedInput::fits(const Tensor& source) const {
  return !is_in_place() || (reads(source) && source.offset() == tensor_.offset());
}

RecordedInput RecordedInput::copy_of(const Tensor& source) {
  RecordedInput input;
  input.is_copied_ = true;
  input.tensor_ = source.clone();
  return input;
}

void RecordedInput::set(const Tensor& source) {
  if (!tensor_.defined()) {
    is_copied_ = !cuda::is_of_recording(source);
    tensor_ = is_copied_ ? source.clone() : source.borrowed();
  } else if (is_copied_) {
    refill(tensor_, source);
  }
}

bool RecordedGradients::none() const {
  return std::none_of(parameters_.begin(), parameters_.end(),
                      [](const Tensor& parameter) { return parameter.grad().defined(); });
}

std::shared_ptr<const RecordedGradients::Tensors> RecordedGradients::recorded() const {
  for (std::size_t i = 0; last_ != nullptr && i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().is_same((*last_)[i])) {
      return nullptr;
    }
  }
  return parameters_.empty() ? nullptr : last_;  // no gradients: each backward finds the same, and needs one recording
}

std::shared_ptr<const RecordedGradients::Tensors> RecordedGradients::collect() const {
  Tensors gradients;
  for (const Tensor& parameter : parameters_) {
    gradients.push_back(parameter.grad());
  }
  return std::make_shared<const Tensors>(std::move(gradients));
}

void RecordedGradients::set(std::shared_ptr<const Tensors> gradients) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].set_grad((*gradients)[i]);
  }
  last_ = std::move(gradients);
}

bool RecordedPass::is_lent() const {
  return std::any_of(lent_.begin(), lent_.end(), [](const auto& owner) { return owner.use_count() > 1; });
}

Tensor RecordedPass::lend(const Tensor& result) {
  if (!result.defined()) {
    return result;
  }
  if (x_.reads(result) || grad_.reads(result)) {
    return result.clone();
  }
  const Tensor owner = result.borrowed();
  lent_.push_back(owner.storage());
  return owner.seen_from(owner.device());
}

void RecordedPass::keep_if_in_place(const Tensor& input, std::vector<Tensor>& kept) const {
  if (x_.reads(input) || grad_.reads(input)) {
    kept.push_back(input);
  }
}

const RecordedPass::Tensors& RecordedPass::run_forward(const Tensor& x, const Tensor& labels, const Forward& forward) {
  lent_.clear();  // here the compute stream waits for what other ranks still do with the results, and no earlier
  x_.set(x);
  refill(tensors_.labels, labels);
  if (forward_ == nullptr) {
    tensors_.x = x_.tensor();
    tensors_.x.set_requires_grad(kind_.wants_gradient);
    forward_ = cuda::record_graph(x.device(), [&] { forward(tensors_); });
    nodes_ = recorded_nodes(tensors_.output);
  }
  forward_->launch();
  for (const auto& node : nodes_) {
    node->renew_versions();
  }
  return tensors_;
}

/// Runs `work`: replays its recording for the present gradients, which is recorded if there is none. Gradients that
/// belong to no recording have no fixed memory, so then the work is launched operation by operation.
Tensor RecordedPass::accumulate(std::vector<Recording>& recordings, const Work& work) {
  const auto before = gradients_->recorded();
  if (before == nullptr && !gradients_->none()) {
    return work();
  }
  auto found = std::find_if(recordings.begin(), recordings.end(),
                            [&](const Recording& recording) { return recording.before == before; });
  if (found == recordings.end()) {
    Recording recording{before};
    recording.graph = cuda::record_graph(tensors_.x.device(), [&] { recording.grad_x = work(); });
    recording.after = before != nullptr ? before : gradients_->collect();
    found = recordings.insert(recordings.end(), std::move(recording));
  } else if (before == nullptr && !std::all_of(found->after->begin(), found->after->end(), [](const Tensor& gradient) {
               return !gradient.defined() || gradient.is_donatable();
             })) {
    return work();  // someone has kept the gradients of an earlier step
  }
  found->graph->launch();
  if (before == nullptr) {
    gradients_->set(found->after);
  }
  return lend(found->grad_x);
}

void RecordedPass::take_gradient_of_output(const Tensor& grad) {
  for (const auto& node : nodes_) {
    node->check_versions();
  }
  if (!grad_.fits(grad)) {  // it comes from another pass than so far
    backwards_.clear();
    weight_parts_.clear();
    input_part_ = {};
    deferred_ = {};
    grad_ = RecordedInput::copy_of(grad);
  }
  grad_.set(grad);
}

Tensor RecordedPass::run_backward(const Tensor& grad) {
  take_gradient_of_output(grad);
  return accumulate(backwards_, [&] {
    backward(tensors_.output, grad_.tensor(), RetainGraph::yes);
    return take_gradient(tensors_.x);
  });
}

std::pair<Tensor, DeferredGradients> RecordedPass::run_backward_input(const Tensor& grad) {
  take_gradient_of_output(grad);
  if (input_part_.graph == nullptr) {
    input_part_.graph = cuda::record_graph(tensors_.x.device(), [&] {
      deferred_ = backward_inputs(tensors_.output, grad_.tensor(), std::vector{tensors_.x}, RetainGraph::yes);
      input_part_.grad_x = take_gradient(tensors_.x);
    });
  }
  input_part_.graph->launch();
  return {lend(input_part_.grad_x), deferred_};
}

void RecordedPass::run_backward_weight() {
  accumulate(weight_parts_, [&] {
    DeferredGradients(deferred_).run();
    return Tensor();
  });
}

}  // namespace stagecoach
