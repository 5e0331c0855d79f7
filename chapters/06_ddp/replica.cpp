#include "chapters/06_ddp/replica.h"

#include <numeric>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "chapters/common/sample.h"
#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/trace.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/data_parallel/compression.h"
#include "parallel/data_parallel/same_model.h"
#include "parallel/data_parallel/sync_batch_norm.h"
#include "parallel/data_parallel/timeline_trace.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

Replica::Replica(const Context& context)
    : settings_(context.settings),
      topology_(context.topology),
      data_(context.data),
      rank_(context.rank),
      model_(make_model(settings_.training, data_.train, rank_.device, rank_.index)),
      optimizer_(make_optimizer(settings_.training, model_->named_parameters())),
      parameters_(model_->named_parameters()),
      times_(rank_.comm, parameters_.size()) {
  if (settings_.data_parallel.sync_batch_norm) {
    synchronise_batch_norm(*model_, rank_.comm);
  }
}

MicroBatchLoader Replica::loader(LoaderFor purpose) {
  const bool trains = purpose == LoaderFor::training;
  return make_rank_loader(settings_, trains ? data_.train : data_.test, purpose, rank_,
                          MicroBatchLoader::Needs::inputs_and_targets, trains ? settings_.training.microbatches : 1,
                          topology_.shard_of(rank_.index));
}

void Replica::broadcast_weights() { broadcast_module(*model_, rank_.comm); }

void Replica::forward_backward(const MicroBatches& batch, EpochSums& sums) {
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(batch.global_size), DType::float32, rank_.device);
  for (std::size_t i = 0; i < batch.sizes.size(); ++i) {
    const auto number = static_cast<int>(i);
    const BatchScope position(batch.position_of(number));  // for layers that draw random numbers (--dropout)
    const auto compute_loss = [&] {
      const Span span("forward", "action", [&] { return to_string(Action{Operation::forward, 0, number}); });
      const Tensor logits = model_->forward(model_input(batch.inputs[i]));         // [N, classes]
      const Tensor sum = cross_entropy(logits, batch.targets[i], Reduction::sum);  // []
      sums.add(sum, logits, batch.targets[i]);
      return sum;
    };
    const Tensor loss = compute_loss();
    is_last_backward_ = i + 1 == batch.sizes.size();
    if (is_last_backward_) {
      times_.begin_backward();
    }
    before_backward(is_last_backward_, loss);
    const Span span("backward", "action", [&] { return to_string(Action{Operation::backward, 0, number}); });
    backward(loss, share);
  }
  times_.end_backward();
}

void Replica::on_complete_gradient(const std::function<void(const Tensor& gradient)>& use) {
  comm_thread_.emplace(rank_.comm);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].second.set_gradient_hook([this, use, i](Tensor& parameter) {
      if (is_last_backward_) {
        times_.gradient_arrived(i);
        use(parameter.grad());
      }
    });
  }
}

ReducerSettings Replica::reducer_settings() const {
  const ReplicaSettings& replicas = settings_.data_parallel;
  return {.caps = replicas.caps(), .find_unused = replicas.find_unused, .reduce = make_compression(replicas.compress)};
}

void Replica::start_all_reduce(Tensor tensor) {
  all_reduces_.push_back(
      comm_thread_->submit("all_reduce", [tensor](Communicator& comm) mutable { comm.all_reduce(tensor); }));
}

void Replica::wait_for_all_reduces() {
  std::vector<CommThread::Span> spans;  // when each began and ended
  for (const CommThread::Pending& all_reduce : all_reduces_) {
    spans.push_back(all_reduce.wait());
  }
  all_reduces_.clear();
  times_.end_reductions(spans);
}

void Replica::wait_for(Reducer& reducer) {
  reducer.finish();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    times_.gradient_arrived(i, reducer.times().arrivals[i]);
  }
  times_.end_reductions(reducer.times().reductions);
}

void Replica::communicate(const char* name, const std::function<void()>& collective) {
  const Span span(name, "communication");
  Clock& clock = rank_.comm.clock();
  const double begin = clock.now();
  collective();
  times_.end_reductions({{begin, clock.now()}});
}

void Replica::update() {
  {
    const Span span("optimizer", "update");
    optimizer_->step();
    optimizer_->zero_grad();
  }
  times_.end_step();
}

void Replica::sync_replicas() {
  require_equal_replicas(parameters_, rank_.comm);
  broadcast_tensors(model_->named_buffers(), rank_.comm);  // batch norm's statistics, which differ between ranks
}

Predictor Replica::predictor() {
  return {.start_epoch = [this] { times_.clear(); },
          .time = [this](std::int64_t steps) { return predicted_time(steps); },
          .timeline = [this] { return predicted_timeline(); }};
}

Prediction Replica::predicted_time(std::int64_t steps) const {
  const StepCosts costs = times_.mean();
  Prediction prediction{.overlap = costs.overlap};
  if (const auto step = predicted_step(costs)) {
    prediction.predicted_idle = step->idle();
    prediction.predicted_seconds = step->seconds * static_cast<double>(steps);
    if (settings_.world.clock != ClockKind::wall) {
      prediction.causes = StepCauses{.reductions = step->waiting()};
    }
  }
  // Computed times are not averaged: the last batch may be smaller, and then rank 0 has most of it.
  if (prediction.predicted_seconds && std::ssize(times_.each()) == steps) {
    const double busy = (1 - *prediction.predicted_idle) * *prediction.predicted_seconds;
    prediction.predicted_seconds = 0;
    for (const StepCosts& each : times_.each()) {
      const auto one = predicted_step(each);
      *prediction.predicted_seconds += one ? one->seconds : 0;
    }
    prediction.predicted_idle = 1 - busy / *prediction.predicted_seconds;
  }
  return prediction;
}

std::optional<TracePrediction> Replica::predicted_timeline() const {
  const auto step = predicted_step(times_.mean());
  if (!step) {
    return std::nullopt;
  }
  std::vector<int> all(static_cast<std::size_t>(rank_.world));
  std::iota(all.begin(), all.end(), 0);
  return TracePrediction{{all}, [step = *step](const auto& ranks, const auto& steps, Trace& trace) {  // all at once
                           add_predicted_steps(step, ranks, steps, trace);
                         }};
}

std::optional<Timeline> Replica::predicted_step(const StepCosts& costs) const {
  if (costs.backward == 0) {  // an epoch that was resumed at its end has no measurements
    return std::nullopt;
  }
  return timeline_of(*settings_.data_parallel.mode, step_of(settings_, topology_, parameters_, costs));
}

void Replica::evaluate(Epoch& epoch, MicroBatchLoader& loader) {
  const NoGrad no_grad;
  model_->train(false);
  for (const MicroBatches& batch : epoch.test_batches(loader)) {
    if (batch.inputs[0].size(0) > 0) {  // a last batch may have fewer images than there are ranks
      count_correct(model_->forward(model_input(batch.inputs[0])), batch.targets[0], epoch.test_sums().correct);
    }
  }
  model_->train(true);
}

void Replica::print_sample() {
  if (rank_.index == 0) {
    stagecoach::print_sample(settings_, *model_, rank_.device);
  }
}

}  // namespace stagecoach
