// A pipeline of two devices whose output is used in a loss of one's own. Then the same on one device.
#include <cstdio>
#include <memory>
#include <vector>

#include "examples.h"
#include "nn/layers.h"

using namespace stagecoach;

std::shared_ptr<Sequential> make_layers() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(16, 8));  // on device 0
  model->add("fc2", std::make_shared<Linear>(8, 4));   // on device 1
  return model;
}

int main() {
  const Tensor x = random_numbers({16, 16}, "input");
  const Tensor target = random_numbers({16, 4}, "target");

  const auto model = make_layers();
  Pipe pipe(model, {.chunks = kChunks, .ranks = 2, .split = {1, 1}});
  const Tensor output = pipe.forward_for_loss(x);  // [16, 4] on device 1
  const Tensor loss = mean_squared_error(output, target.to(output.device()));
  backward(loss);  // runs the backward of the pipeline
  pipe.step();
  pipe.zero_grad();
  std::printf("loss %.4f\n", loss.item());

  // One device, with the same micro-batches: each adds its part of the loss's gradient.
  const auto alone = make_layers();
  alone->materialize(1);
  Sgd optimizer(alone->named_parameters());
  std::vector<Tensor> parts;
  for (const Tensor& part : micro_batches(x, kChunks)) {
    parts.push_back(alone->forward(part));
  }
  Tensor whole = cat(parts).detach().set_requires_grad(true);
  backward(mean_squared_error(whole, target));
  const std::vector<Tensor> gradients = micro_batches(whole.grad(), kChunks);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    backward(parts[i], gradients[i]);
  }
  optimizer.step();
  print_comparison({weights_in(*model), weights_in(*alone)});
  return 0;
}
