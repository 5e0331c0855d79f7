/// @file
/// A solution of lab 7.

#include "chapters/07_one_controller/lab/move.h"
#include "chapters/07_one_controller/lab/tick_step.h"
#include "core/ops.h"
#include "core/transfer.h"

namespace stagecoach::lab {

Move start_move(const Tensor& x, Device to) {
  if (x.device() == to) {
    return {.tensor = x, .arrived = {}};
  }
  Move move{.tensor = Tensor::empty(x.shape(), x.dtype(), to), .arrived = {}};
  Event ready;
  ready.record({x.device(), Stream::kCompute});
  move.arrived = copy_async(x, move.tensor, ready, ready);  // nobody else knows the memory of the copy
  return move;
}

Tensor finish_move(const Move& move) {
  if (move.arrived.recorded()) {
    move.arrived.wait({move.tensor.device(), Stream::kCompute});
  }
  return move.tensor;
}

Tensor tick_step(const TickStep& step) {
  const std::size_t stages = step.stages.size();
  const std::size_t last = stages - 1;
  const std::size_t microbatches = step.images.size();
  const std::size_t ticks = microbatches + stages - 1;
  std::int64_t samples = 0;
  for (const Tensor& labels : step.labels) {
    samples += labels.size(0);
  }
  const Tensor share = Tensor::full({}, 1.0 / static_cast<double>(samples), DType::float32, step.devices[last]);
  Tensor sum;               // of the losses so far
  std::vector<Move> moves;  // of each micro-batch, what enters the next stage; later its gradient
  for (const Tensor& images : step.images) {
    moves.push_back(start_move(images, step.devices[0]));
  }
  for (std::size_t tick = 0; tick < ticks; ++tick) {
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t i = tick - s;  // a huge number before the first micro-batch
      if (i >= microbatches) {
        continue;
      }
      const int number = static_cast<int>(i);
      const Tensor x = finish_move(moves[i]);
      if (s < last) {
        moves[i] = start_move(step.stages[s].forward(number, x, s > 0), step.devices[s + 1]);
        continue;
      }
      const Tensor labels = finish_move(start_move(step.labels[i], step.devices[s]));
      const Tensor loss = step.stages[s].forward_with_loss(number, x, labels, s > 0, nullptr);
      sum = sum.defined() ? add(sum, loss) : loss;
      moves[i] = start_move(share, step.devices[s]);
    }
  }
  for (std::size_t tick = 0; tick < ticks; ++tick) {
    for (std::size_t s = 0; s < stages; ++s) {
      if (const std::size_t i = tick - (last - s); i < microbatches) {
        const Tensor grad = step.stages[s].backward(static_cast<int>(i), finish_move(moves[i]));
        if (s > 0) {
          moves[i] = start_move(grad, step.devices[s - 1]);
        }
      }
    }
  }
  return sum;
}

}  // namespace stagecoach::lab
