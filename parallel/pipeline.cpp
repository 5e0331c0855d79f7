#include "parallel/pipeline.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/trace.h"
#include "parallel/comm/activity.h"

namespace stagecoach {
namespace {

const char* name_of(Operation operation) {
  constexpr const char* kNames[] = {"forward", "backward", "backward_input", "backward_weight"};
  return kNames[static_cast<std::size_t>(operation)];
}

/// A shape as a tensor that can be sent before the receiver knows any shape: [1 + kMaxDims] int32.
Tensor shape_message(const Shape& shape, Device device) {
  std::vector<std::int32_t> numbers(1 + Shape::kMaxDims, 0);
  numbers[0] = shape.dims();
  for (int d = 0; d < shape.dims(); ++d) {
    numbers[static_cast<std::size_t>(d + 1)] = static_cast<std::int32_t>(shape[d]);
  }
  return Tensor::from(numbers, {1 + Shape::kMaxDims}, device);
}

Shape shape_from(const Tensor& message) {
  const auto numbers = message.to_vector<std::int32_t>();
  std::array<std::int64_t, Shape::kMaxDims> extents{};
  std::copy(numbers.begin() + 1, numbers.end(), extents.begin());
  return Shape(extents.data(), numbers[0]);
}

}  // namespace

Pipeline::Pipeline(const Schedule& schedule, std::map<int, Stage> stages, Communicator& comm)
    : schedule_(schedule), stages_(std::move(stages)), comm_(comm) {
  STAGECOACH_CHECK(schedule.rank_count() == comm.size(), "pipeline: a schedule of {} ranks for {}",
                   schedule.rank_count(), comm.size());
  for (int s = 0; s < schedule.stages; ++s) {
    STAGECOACH_CHECK((holder(s) == comm.rank()) == stages_.contains(s), "pipeline: stage {} is of rank {}, this is {}",
                     s, holder(s), comm.rank());
  }
}

int Pipeline::tag(int stage, int microbatch, Way way) const {
  return (stage * schedule_.microbatches + microbatch) * 2 + (way == Way::backward ? 1 : 0);
}

void Pipeline::run(const StepData& data, const std::function<void(int, const Tensor&, const Tensor&)>& see_scores) {
  STAGECOACH_CHECK(static_cast<int>(data.samples.size()) == schedule_.microbatches,
                   "pipeline: {} micro-batches for a schedule of {}", data.samples.size(), schedule_.microbatches);
  data_ = &data;
  see_scores_ = see_scores;
  peak_ = 0;
  for (const Action& action : schedule_.ranks[static_cast<std::size_t>(comm_.rank())]) {
    run_action(action);
  }
  for (const PendingSend& send : sends_) {
    send.wait();
  }
  sends_.clear();
}

void Pipeline::run_action(const Action& action) {
  const Activity activity(name_of(action.operation), action.stage, action.microbatch);
  const Span span(name_of(action.operation), "action");
  const auto [operation, number, microbatch] = action;
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
  }
}

void Pipeline::forward(int number, int microbatch) {
  Stage& stage = stages_.at(number);
  const bool first = number == 0;
  const Tensor x = first ? data_->input(microbatch) : take(number, microbatch, Way::forward);
  if (is_last(number)) {
    Tensor scores;
    const Tensor loss = stage.forward_with_loss(microbatch, x, data_->labels(microbatch), !first, &scores);
    if (see_scores_) {
      see_scores_(microbatch, loss, scores);
    }
  } else {
    give(stage.forward(microbatch, x, !first), number + 1, microbatch, Way::forward);
  }
  std::size_t alive = 0;
  for (const auto& [each, one] : stages_) {
    alive += one.alive();
  }
  peak_ = std::max(peak_, alive);
}

/// The gradient of a stage's output. The loss is a mean over the step: each sample's share of it, not of the
/// micro-batch.
Tensor Pipeline::gradient_for(int number, int microbatch) {
  if (!is_last(number)) {
    return take(number, microbatch, Way::backward);
  }
  const std::int64_t samples = std::accumulate(data_->samples.begin(), data_->samples.end(), std::int64_t{0});
  return Tensor::full({}, 1.0 / static_cast<double>(samples), DType::float32, comm_.device());
}

/// Hands `tensor` to `number`, the stage that works on it next; nothing, before the first stage.
void Pipeline::give(Tensor tensor, int number, int microbatch, Way way) {
  if (number < 0) {
    return;
  }
  const int label = tag(number, microbatch, way);
  if (holder(number) == comm_.rank()) {
    at_hand_[label] = std::move(tensor);
    return;
  }
  if (way == Way::forward && !sample_shapes_.contains(number)) {  // once: what a sample looks like here
    sample_shapes_[number] = tensor.shape().with(0, 1);
    sends_.push_back(comm_.send_async(shape_message(sample_shapes_[number], comm_.device()), holder(number), label));
  }
  sends_.push_back(comm_.send_async(tensor, holder(number), label));
}

/// What stage `number` works on.
Tensor Pipeline::take(int number, int microbatch, Way way) {
  const int label = tag(number, microbatch, way);
  const int giver = way == Way::forward ? number - 1 : number + 1;
  if (holder(giver) == comm_.rank()) {
    return at_hand_.extract(label).mapped();
  }
  // A gradient looks like the activation that it belongs to: what enters the next stage.
  const int entered = way == Way::forward ? number : number + 1;
  if (way == Way::forward && !sample_shapes_.contains(number)) {
    const Tensor message = comm_.receive({1 + Shape::kMaxDims}, DType::int32, holder(giver), label);
    sample_shapes_[number] = shape_from(message);
  }
  const Shape shape = sample_shapes_.at(entered).with(0, data_->samples[static_cast<std::size_t>(microbatch)]);
  return comm_.receive(shape, DType::float32, holder(giver), label);
}

}  // namespace stagecoach
