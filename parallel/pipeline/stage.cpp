#include "parallel/pipeline/stage.h"

#include "core/base/error.h"
#include "core/ops.h"
#include "nn/running_statistics.h"
#include "parallel/pipeline/action_log.h"

namespace stagecoach {
namespace {

/// Returns whether there is anything to compute in the backward: not in a first stage without parameters.
bool has_gradients(const Tensor& x, const Tensor& output) { return x.requires_grad() || !output.is_leaf(); }

/// Times an action until the result is destroyed, if there is a log and the caller does not time it already.
std::optional<ActionLog::Scope> timed(ActionLog* log, const Action& action) {
  return log == nullptr || log->is_timing() ? std::nullopt
                                            : std::optional<ActionLog::Scope>(std::in_place, *log, action);
}

}  // namespace

Stage::Stage(std::shared_ptr<Sequential> layers, Recompute recompute, LossFunction loss, Record record)
    : layers_(std::move(layers)),
      recompute_(recompute),
      loss_(std::move(loss)),
      passes_(record == Record::yes && recompute == Recompute::no ? std::make_unique<RecordedPasses>(*layers_)
                                                                  : nullptr) {}

void Stage::log_to(ActionLog& log, int number) {
  log_ = &log;
  number_ = number;
}

Tensor Stage::run(Flight& flight, Tensor* logits) {
  const BatchScope scope(flight.position);
  const NamedValues values(flight.values);  // with those that layers of this stage keep for each other
  const Tensor y = layers_->forward(flight.x);
  return flight.labels.defined() ? loss_(y, flight.labels, logits) : y;
}

/// Runs the forward in the flight's pass; from then on its tensors are the flight's.
Tensor Stage::run_recorded(Flight& flight, Tensor* logits) {
  const auto& [x, labels, output, predictions] =
      flight.pass->run_forward(flight.x, flight.labels, [&](RecordedPass::Tensors& tensors) {
        Flight recorded{tensors.x, tensors.labels};
        tensors.output = run(recorded, &tensors.logits);
      });
  flight.pass->keep_if_in_place(flight.x, flight.read_in_place);
  flight.x = x;
  flight.labels = labels;
  flight.output = output;
  flight.is_recorded = true;
  if (logits != nullptr) {
    *logits = flight.pass->lend(predictions);
  }
  return flight.pass->lend(output);
}

Tensor Stage::begin(int microbatch, Flight flight, bool wants_gradient, Tensor* logits) {
  const auto scope = timed(log_, {Operation::forward, number_, microbatch});
  flight.x = flight.x.detach();  // the graph begins here
  if (wants_gradient) {
    flight.x.set_requires_grad(true);
  }
  Tensor output;
  // A recording would repeat what it has drawn or found.
  const bool may_differ = flight.position.has_value() || !flight.values.empty();
  if (recompute_ == Recompute::yes && grad_enabled()) {
    const NoGrad no_grad;
    output = run(flight, logits).detach();  // layers may return the leaf itself
  } else if (passes_ != nullptr && grad_enabled() && !may_differ &&
             (flight.pass = passes_->free_pass(flight.x, flight.labels, wants_gradient, layers_->is_training())) &&
             !flight.pass->is_first_use()) {
    output = run_recorded(flight, logits);
  } else {
    flight.output = run(flight, logits);
    output = flight.output.detach();
  }
  if (grad_enabled()) {
    const bool is_new = alive_.emplace(microbatch, std::move(flight)).second;
    STAGECOACH_CHECK(is_new, "stage: micro-batch {} has already run forward; run its backward first", microbatch);
  }
  return output;
}

Tensor Stage::forward(int microbatch, const Tensor& x, bool wants_gradient) {
  return begin(microbatch, {x}, wants_gradient, nullptr);
}

Tensor Stage::forward_with_loss(int microbatch, const Tensor& x, const Tensor& labels, bool wants_gradient,
                                Tensor* logits) {
  return begin(microbatch, {x, labels}, wants_gradient, logits);
}

Stage::Flight& Stage::flight(int microbatch, const char* operation) {
  const auto found = alive_.find(microbatch);
  STAGECOACH_CHECK(
      found != alive_.end(),
      "stage: {} of micro-batch {} was called, but there is no graph of it: its forward has not run, or its "
      "backward has run already",
      operation, microbatch);
  Flight& flight = found->second;
  if (!flight.output.defined() && !flight.weights) {
    const KeepRunningStatistics keep;  // the first forward has updated them already
    flight.output = run(flight, nullptr);
  }
  return flight;
}

void Stage::add_gradients_in_order(std::vector<int> microbatches) {
  order_ = std::move(microbatches);
  added_ = 0;
  waiting_.clear();
}

/// Called after the gradients of the micro-batch whose turn it was have been added: adds those that waited for them.
void Stage::advance() {
  for (++added_; added_ < order_.size(); ++added_) {
    const auto found = waiting_.find(order_[added_]);
    if (found == waiting_.end()) {
      break;
    }
    found->second.add();
    waiting_.erase(found);
  }
}

Tensor Stage::backward(int microbatch, const Tensor& grad) {
  const auto scope = timed(log_, {Operation::backward, number_, microbatch});
  Flight& in_flight = flight(microbatch, "backward");
  if (!is_next(microbatch)) {
    const Tensor gradient = run_backward_input(microbatch, grad);
    run_backward_weight(microbatch);
    return gradient;
  }
  Tensor gradient;
  if (has_gradients(in_flight.x, in_flight.output)) {
    if (in_flight.is_recorded) {
      gradient = in_flight.pass->run_backward(grad);
    } else {
      stagecoach::backward(in_flight.output, grad);
      gradient = take_gradient(in_flight.x);
    }
  }
  alive_.erase(microbatch);
  advance();
  return gradient;
}

Tensor Stage::backward_input(int microbatch, const Tensor& grad) {
  const auto scope = timed(log_, {Operation::backward_input, number_, microbatch});
  return run_backward_input(microbatch, grad);
}

void Stage::backward_weight(int microbatch) {
  const auto scope = timed(log_, {Operation::backward_weight, number_, microbatch});
  run_backward_weight(microbatch);
}

Tensor Stage::run_backward_input(int microbatch, const Tensor& grad) {
  Flight& in_flight = flight(microbatch, "backward_input");
  if (in_flight.is_recorded && has_gradients(in_flight.x, in_flight.output)) {
    in_flight.output = {};
    auto [gradient, weights] = in_flight.pass->run_backward_input(grad);
    in_flight.pass->keep_if_in_place(grad, in_flight.read_in_place);
    in_flight.weights = std::move(weights);
    return gradient;
  }
  const std::vector<Tensor> inputs{in_flight.x};
  in_flight.weights = has_gradients(in_flight.x, in_flight.output)
                          ? stagecoach::backward_inputs(in_flight.output, grad, inputs)
                          : DeferredGradients();
  in_flight.output = {};
  return take_gradient(in_flight.x);
}

void Stage::run_backward_weight(int microbatch) {
  Flight& in_flight = flight(microbatch, "backward_weight");
  STAGECOACH_CHECK(
      in_flight.weights.has_value(),
      "stage: backward_weight of micro-batch {} was called before its backward_input; run backward_input first",
      microbatch);
  if (is_next(microbatch)) {
    if (in_flight.is_recorded && in_flight.weights->size() > 0) {
      in_flight.pass->run_backward_weight();
    } else {
      in_flight.weights->run();
    }
    advance();
  } else {
    waiting_.emplace(microbatch, in_flight.weights->run_and_hold());
  }
  alive_.erase(microbatch);
}

}  // namespace stagecoach
