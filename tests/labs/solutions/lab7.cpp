/// @file
/// A solution of lab 7.

#include "chapters/07_one_controller/lab/move.h"
#include "chapters/07_one_controller/lab/tick_step.h"
#include "core/ops.h"
#include "core/transfer.h"

namespace stagecoach::lab {

Tensor move(const Tensor& x, Device to) {
  if (x.device() == to) {
    return x;
  }
  Tensor out = Tensor::empty(x.shape(), x.dtype(), to);
  copy_async(x, out).wait({to, Stream::kCompute});
  return out;
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
  Tensor sum;                              // of the losses so far
  std::vector<Tensor> here = step.images;  // of each micro-batch, what enters the next stage; later its gradient
  for (std::size_t tick = 0; tick < ticks; ++tick) {
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t i = tick - s;  // a huge number before the first micro-batch
      if (i >= microbatches) {
        continue;
      }
      const int number = static_cast<int>(i);
      const Tensor x = move(here[i], step.devices[s]);
      if (s < last) {
        here[i] = step.stages[s].forward(number, x, s > 0);
        continue;
      }
      const Tensor labels = move(step.labels[i], step.devices[s]);
      const Tensor loss = step.stages[s].forward_with_loss(number, x, labels, s > 0, nullptr);
      sum = sum.defined() ? add(sum, loss) : loss;
      here[i] = share;
    }
  }
  for (std::size_t tick = 0; tick < ticks; ++tick) {
    for (std::size_t s = 0; s < stages; ++s) {
      if (const std::size_t i = tick - (last - s); i < microbatches) {
        here[i] = step.stages[s].backward(static_cast<int>(i), move(here[i], step.devices[s]));
      }
    }
  }
  return sum;
}

}  // namespace stagecoach::lab
