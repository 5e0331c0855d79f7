// A pipeline of two devices whose output is used in a loss of one's own. Then the same on one device.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/random.h"
#include "datasets/shares.h"
#include "nn/layers.h"
#include "parallel/parallel.h"

using namespace stagecoach;

constexpr int kChunks = 8;

std::shared_ptr<Sequential> make_layers() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(16, 8));  // on device 0
  model->add("fc2", std::make_shared<Linear>(8, 4));   // on device 1
  return model;
}

Tensor random_numbers(const Shape& shape, const char* name) {
  const Philox random(1, name);
  std::vector<float> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(random.normal(i));
  }
  return Tensor::from(numbers, shape);
}

bool equal_bytes(const NamedTensors& a, const NamedTensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto left = a[i].second.to_vector<float>();
    const auto right = b[i].second.to_vector<float>();
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return a.size() == b.size();
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
  std::printf("weights: %s\n", equal_bytes(model->named_parameters(), alone->named_parameters()) ? "equal" : "differ");
  return 0;
}
