#include "parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/trace.h"
#include "parallel/comm/activity.h"
#include "parallel/pipeline/passed_on.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/lower.h"

namespace stagecoach {

Pipeline::Pipeline(std::map<int, Stage> stages, std::vector<Shape> entering, Placement placement, Communicator& comm,
                   DType type)
    : stages_(std::move(stages)),
      entering_(std::move(entering)),
      placement_(std::move(placement)),
      comm_(comm),
      type_(type),
      log_(comm, placement_.stage_count()) {
  STAGECOACH_CHECK(entering_.size() == placement_.stage_to_rank.size(),
                   "pipeline: expected one input shape per stage, got {} for {} stages", entering_.size(),
                   placement_.stage_count());
  for (int s = 0; s < placement_.stage_count(); ++s) {
    STAGECOACH_CHECK(placement_.holds(comm.rank(), s) == stages_.contains(s),
                     "pipeline: expected this rank's stages only, got stage {} of rank {} on rank {}", s,
                     placement_.rank_of(s, 0), comm.rank());
  }
  for (auto& [number, stage] : stages_) {
    stage.log_to(log_, number);
  }
}

const Pipeline::Perform Pipeline::kPerform[kOperations] = {
    &Pipeline::forward,          // F
    &Pipeline::backward,         // B
    &Pipeline::backward,         // I
    &Pipeline::backward_weight,  // W
    &Pipeline::perform_update,   // U
    &Pipeline::send,             // SEND_F
    &Pipeline::receive,          // RECV_F
    &Pipeline::send,             // SEND_B
    &Pipeline::receive,          // RECV_B
    &Pipeline::reduce,           // REDUCE_GRAD
};

/// Returns the tag of a message: one for the input of `stage`, another for the gradient of its output.
int Pipeline::tag(int stage, int microbatch, Direction direction) const {
  const int stages = placement_.stage_count();
  return (microbatch * stages + stage) * 2 + (direction == Direction::backward ? 1 : 0);
}

void Pipeline::run(const Schedule& schedule, StepData data, Hooks hooks) {
  begin(schedule, std::move(data), std::move(hooks));
  for (const Action& action : schedule.ranks[static_cast<std::size_t>(comm_.rank())]) {
    perform(action);
  }
  finish();
}

void Pipeline::begin(const Schedule& schedule, StepData data, Hooks hooks) {
  STAGECOACH_CHECK(static_cast<const Placement&>(schedule) == placement_ && schedule.rank_count() == comm_.size(),
                   "pipeline: the schedule does not match the pipeline: expected {2} ranks and {3} stages with the "
                   "same placement, got {0} ranks and {1} stages",
                   schedule.rank_count(), schedule.stage_count(), comm_.size(), placement_.stage_count());
  STAGECOACH_CHECK(static_cast<int>(data.samples.size()) == schedule.microbatches,
                   "pipeline: expected as many micro-batches as the schedule has ({1}), got {0}", data.samples.size(),
                   schedule.microbatches);
  STAGECOACH_CHECK(schedule.is_lowered,
                   "pipeline: expected a lowered schedule, got one without communication; call lower() first");
  STAGECOACH_CHECK(
      2 * std::int64_t{schedule.microbatches} * schedule.stage_count() <= std::int64_t{kMaxTag} + 1,
      "pipeline: {} micro-batches and {} stages need tags above the maximum of {}; use fewer micro-batches per batch",
      schedule.microbatches, schedule.stage_count(), kMaxTag);
  results_.clear();  // left over if the previous run failed
  receives_.clear();
  sends_.clear();
  data_ = std::move(data);
  hooks_ = std::move(hooks);
  batch_ = schedule.batch > 0 ? schedule.batch : schedule.microbatches;
  sends_wait_ = schedule.sends_wait;
  const auto& actions = schedule.ranks[static_cast<std::size_t>(comm_.rank())];
  for (auto& [number, stage] : stages_) {
    stage.add_gradients_in_order(gradient_order(actions, number));
  }
}

void Pipeline::perform(const Action& action) { (this->*kPerform[static_cast<std::size_t>(action.operation)])(action); }

void Pipeline::finish() {
  for (const PendingSend& send : sends_) {
    send.wait();
  }
  sends_.clear();
  data_ = {};
  hooks_ = {};
}

void Pipeline::train(bool on) {
  for (auto& [number, stage] : stages_) {
    stage.layers().train(on);
  }
}

/// Runs `body`, which computes and waits for messages, on the action's stage, and times it.
template <class Body>
void Pipeline::work(const Action& action, const Body& body) {
  const ActionLog::Scope scope(log_, action);
  body(stages_.at(action.stage));
}

void Pipeline::forward(const Action& action) {
  work(action, [&](Stage& stage) {
    const auto [operation, number, microbatch] = action;
    const BatchScope scope(position_of(microbatch));
    const NamedValues values(data_.values ? data_.values(microbatch) : NamedTensors{});
    const bool is_first = number == 0;
    const bool wants_gradient = !is_first || data_.wants_input_gradient;
    const Tensor x = is_first ? data_.input(microbatch) : take(number, microbatch, Direction::forward);
    if (!is_last(number)) {
      const Tensor output = stage.forward(microbatch, x, wants_gradient);
      require_passed_on(number, stage.layers(), x, output, shape_entering(number + 1, microbatch), type_);
      give(output, number + 1, microbatch, Direction::forward);
      return;
    }
    Tensor loss;
    Tensor logits;
    if (data_.labels) {
      loss = stage.forward_with_loss(microbatch, x, data_.labels(microbatch), wants_gradient, &logits);
    } else {
      logits = stage.forward(microbatch, x, wants_gradient);
    }
    if (hooks_.see_logits) {
      hooks_.see_logits(microbatch, loss, logits);
    }
  });
}

void Pipeline::backward(const Action& action) {
  work(action, [&](Stage& stage) {
    const auto [operation, number, microbatch] = action;
    const Tensor gradient = gradient_for(number, microbatch);
    const Tensor input_gradient = operation == Operation::backward ? stage.backward(microbatch, gradient)
                                                                   : stage.backward_input(microbatch, gradient);
    if (number > 0) {
      give(input_gradient, number - 1, microbatch, Direction::backward);
    } else if (hooks_.see_input_gradient && input_gradient.defined()) {
      hooks_.see_input_gradient(microbatch, input_gradient);
    }
  });
}

void Pipeline::backward_weight(const Action& action) {
  work(action, [&](Stage& stage) { stage.backward_weight(action.microbatch); });
}

void Pipeline::perform_update(const Action& action) {
  STAGECOACH_CHECK(hooks_.update != nullptr,
                   "pipeline: expected an action other than an update, got {}; give Hooks::update, which updates the "
                   "weights",
                   to_string(action));
  const ActionLog::Scope scope(log_, action);
  hooks_.update(action);
}

void Pipeline::update(Optimizer& optimizer, const Action& update) {
  const ActionLog::Scope scope(log_, update);
  optimizer.step();
  optimizer.zero_grad();
}

void Pipeline::reduce(const Action& action) {
  if (hooks_.reduce) {
    const ActionLog::Scope scope(log_, action);
    hooks_.reduce(action);
  }
}

void Pipeline::send(const Action& action) {
  const Action receive = receive_of(action);
  const bool goes_forward = action.operation == Operation::send_forward;
  const int label = tag(receive.stage, receive.microbatch, goes_forward ? Direction::forward : Direction::backward);
  const auto result = results_.extract(label);
  STAGECOACH_CHECK(!result.empty(),
                   "pipeline: {}: no computation has produced the tensor to send; run the computation first",
                   to_string(action));
  while (!sends_.empty() && sends_.front().completed()) {  // otherwise they would pile up in a run over many batches
    sends_.pop_front();
  }
  const Activity activity("send", action.stage, action.microbatch);
  const Span span("send", "message", [&] { return to_string(action); });
  const int to = placement_.rank_of(receive.stage, receive.microbatch);
  sends_.push_back(comm_.send_async(result.mapped(), to, label));
  if (sends_wait_) {
    sends_.back().wait();
    sends_.pop_back();
  }
}

void Pipeline::receive(const Action& action) {
  const bool goes_forward = action.operation == Operation::receive_forward;
  const int label = tag(action.stage, action.microbatch, goes_forward ? Direction::forward : Direction::backward);
  // A gradient has the shape of its activation, which is the input of the next stage.
  const int entered = goes_forward ? action.stage : action.stage + 1;
  const int from = placement_.rank_of(send_of(action).stage, action.microbatch);
  receives_.emplace(label, comm_.receive_async(shape_entering(entered, action.microbatch), type_, from, label));
}

/// Returns the shape of the input of stage `number`.
Shape Pipeline::shape_entering(int number, int microbatch) const {
  const std::int64_t samples = data_.samples[static_cast<std::size_t>(microbatch)];
  return entering_[static_cast<std::size_t>(number)].with(0, samples);
}

std::optional<BatchPosition> Pipeline::position_of(int microbatch) const {
  std::optional<BatchPosition> position = data_.position;
  if (position) {
    const int begin = microbatch / batch_ * batch_;  // of its batch
    position->step += microbatch / batch_;
    position->first +=
        std::accumulate(data_.samples.begin() + begin, data_.samples.begin() + microbatch, std::int64_t{0});
  }
  return position;
}

/// Returns the gradient of a stage's output. For the last stage and a summed loss that is 1 / (samples of the batch),
/// not of the micro-batch, because the loss is a mean over the batch. On a GPU it is kept for the next micro-batch,
/// whose gradient mostly is the same: the launch takes as long as a small backward.
Tensor Pipeline::gradient_for(int number, int microbatch) {
  if (!is_last(number)) {
    return take(number, microbatch, Direction::backward);
  }
  if (data_.output_gradient) {
    return data_.output_gradient(microbatch);
  }
  const auto all = static_cast<std::ptrdiff_t>(data_.samples.size());
  const std::ptrdiff_t first = microbatch / batch_ * batch_;
  const std::int64_t samples = std::accumulate(data_.samples.begin() + first,
                                               data_.samples.begin() + std::min(first + batch_, all), std::int64_t{0});
  const double share = stages_.at(number).loss().weight(data_.samples[static_cast<std::size_t>(microbatch)]) /
                       static_cast<double>(data_.of.value_or(samples));
  auto& [last_share, last] = loss_gradient_;
  if (last.defined() && last_share == share) {
    return last;
  }
  Tensor gradient = Tensor::full({}, share, type_, comm_.device());
  if (comm_.device().type == DeviceType::cuda) {
    loss_gradient_ = {share, gradient};
  }
  return gradient;
}

/// Keeps the next input of stage `number` until it is used or sent.
void Pipeline::give(Tensor tensor, int number, int microbatch, Direction direction) {
  results_[tag(number, microbatch, direction)] = std::move(tensor);
}

/// Returns the input of stage `number`, made by another stage of this rank or received from another rank.
Tensor Pipeline::take(int number, int microbatch, Direction direction) {
  const int label = tag(number, microbatch, direction);
  if (auto receive = receives_.extract(label)) {
    return receive.mapped().wait();
  }
  auto result = results_.extract(label);
  STAGECOACH_CHECK(
      !result.empty(),
      "pipeline: stage {} has no input for micro-batch {}; run the previous computation or receive its result first",
      number, microbatch);
  return std::move(result.mapped());
}

}  // namespace stagecoach
