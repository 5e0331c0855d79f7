#include "parallel/pipeline/pipeline.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "parallel/schedule/gradient_order.h"

namespace stagecoach {

Pipeline::Pipeline(std::map<int, Stage> stages, std::vector<Shape> entering, Placement placement, Communicator& comm)
    : stages_(std::move(stages)),
      entering_(std::move(entering)),
      placement_(std::move(placement)),
      comm_(comm),
      log_(comm, placement_.stage_count()) {
  STAGECOACH_CHECK(entering_.size() == placement_.holder.size(), "pipeline: the shapes of {} stages for {}",
                   entering_.size(), placement_.stage_count());
  for (int s = 0; s < placement_.stage_count(); ++s) {
    STAGECOACH_CHECK(placement_.holds(comm.rank(), s) == stages_.contains(s),
                     "pipeline: stage {} is of rank {}, this is {}", s, placement_.rank_of(s, 0), comm.rank());
  }
}

/// Each stage and direction has a tag for each micro-batch, whatever their number in a step.
int Pipeline::tag(int stage, int microbatch, Way way) const {
  const int stages = placement_.stage_count();
  return (microbatch * stages + stage) * 2 + (way == Way::backward ? 1 : 0);
}

void Pipeline::run(const Schedule& schedule, const StepData& data, const Hooks& hooks) {
  STAGECOACH_CHECK(static_cast<const Placement&>(schedule) == placement_ && schedule.rank_count() == comm_.size(),
                   "pipeline: a schedule of {} ranks and {} stages for {} and {}, or with stages on other ranks",
                   schedule.rank_count(), schedule.stages, comm_.size(), placement_.stage_count());
  STAGECOACH_CHECK(static_cast<int>(data.samples.size()) == schedule.microbatches,
                   "pipeline: {} micro-batches for a schedule of {}", data.samples.size(), schedule.microbatches);
  data_ = &data;
  hooks_ = &hooks;
  batch_ = schedule.batch > 0 ? schedule.batch : schedule.microbatches;
  peak_ = 0;
  peak_waiting_ = 0;
  const auto& actions = schedule.ranks[static_cast<std::size_t>(comm_.rank())];
  for (auto& [number, stage] : stages_) {
    stage.add_gradients_in_order(gradient_order(actions, number));
  }
  for (std::size_t place = 0; place < actions.size(); ++place) {
    if (hooks.admits && !hooks.admits(place)) {
      continue;
    }
    run_action(actions[place], place);
    if (hooks.after) {
      hooks.after(place);
    }
  }
  if (hooks.at_end) {
    hooks.at_end();
  }
  for (const PendingSend& send : sends_) {
    send.wait();
  }
  sends_.clear();
}

void Pipeline::train(bool on) {
  for (auto& [number, stage] : stages_) {
    stage.layers().train(on);
  }
}

void Pipeline::run_action(const Action& action, std::size_t place) {
  const auto [operation, number, microbatch] = action;
  const ActionLog::Scope scope(log_, action);
  if (hooks_->before) {
    hooks_->before(place);
  }
  Stage& stage = stages_.at(number);
  switch (operation) {
    case Operation::forward:
      forward(number, microbatch);
      break;
    case Operation::backward:
      give(stage.backward(microbatch, gradient_for(number, microbatch)), number - 1, microbatch, Way::backward);
      break;
    case Operation::backward_input:
      give(stage.backward_input(microbatch, gradient_for(number, microbatch)), number - 1, microbatch, Way::backward);
      break;
    case Operation::backward_weight:
      stage.backward_weight(microbatch);
      break;
    case Operation::update:
      hooks_->update(place);
      drop_taken_sends();
      break;
  }
  note_peaks();
}

void Pipeline::note_peaks() {
  std::size_t alive = 0;
  std::size_t waiting = 0;
  for (const auto& [number, stage] : stages_) {
    alive += stage.alive();
    waiting += stage.waiting_gradients();
  }
  peak_ = std::max(peak_, alive);
  peak_waiting_ = std::max(peak_waiting_, waiting);
}

/// A run over many batches would collect them.
void Pipeline::drop_taken_sends() {
  std::erase_if(sends_, [](const PendingSend& send) { return send.taken(); });
}

void Pipeline::forward(int number, int microbatch) {
  Stage& stage = stages_.at(number);
  const bool first = number == 0;
  const Tensor x = first ? data_->input(microbatch) : take(number, microbatch, Way::forward);
  if (is_last(number)) {
    Tensor scores;
    const Tensor loss = stage.forward_with_loss(microbatch, x, data_->labels(microbatch), !first, &scores);
    if (hooks_->see_scores) {
      hooks_->see_scores(microbatch, loss, scores);
    }
  } else {
    give(stage.forward(microbatch, x, !first), number + 1, microbatch, Way::forward);
  }
}

/// The gradient of a stage's output. The loss is a mean over the batch: each sample's share of it, not of the
/// micro-batch.
Tensor Pipeline::gradient_for(int number, int microbatch) {
  if (!is_last(number)) {
    return take(number, microbatch, Way::backward);
  }
  const auto all = static_cast<std::ptrdiff_t>(data_->samples.size());
  const std::ptrdiff_t first = microbatch / batch_ * batch_;
  const std::int64_t samples = std::accumulate(data_->samples.begin() + first,
                                               data_->samples.begin() + std::min(first + batch_, all), std::int64_t{0});
  return Tensor::full({}, 1.0 / static_cast<double>(data_->of.value_or(samples)), DType::float32, comm_.device());
}

/// Hands `tensor` to `number`, the stage that works on it next; nothing, before the first stage.
void Pipeline::give(Tensor tensor, int number, int microbatch, Way way) {
  if (number < 0) {
    return;
  }
  const int label = tag(number, microbatch, way);
  const int holder = placement_.rank_of(number, microbatch);
  if (holder == comm_.rank()) {
    at_hand_[label] = std::move(tensor);
    return;
  }
  if (way == Way::forward) {
    log_.note_message(number - 1, tensor.bytes());
  }
  sends_.push_back(comm_.send_async(tensor, holder, label));
}

/// What stage `number` works on.
Tensor Pipeline::take(int number, int microbatch, Way way) {
  const int label = tag(number, microbatch, way);
  const int giver = way == Way::forward ? number - 1 : number + 1;
  const int holder = placement_.rank_of(giver, microbatch);
  if (holder == comm_.rank()) {
    auto found = at_hand_.extract(label);
    STAGECOACH_CHECK(!found.empty(), "pipeline: stage {} has not yet given micro-batch {}", giver, microbatch);
    return std::move(found.mapped());
  }
  // A gradient looks like the activation that it belongs to: what enters the next stage.
  const int entered = way == Way::forward ? number : number + 1;
  const std::int64_t samples = data_->samples[static_cast<std::size_t>(microbatch)];
  const Shape shape = entering_[static_cast<std::size_t>(entered)].with(0, samples);
  return comm_.receive(shape, DType::float32, holder, label);
}

}  // namespace stagecoach
