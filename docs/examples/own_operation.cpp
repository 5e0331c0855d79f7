// An operation of one's own, x sigmoid(x), with its gradient, and a layer that uses it. Trains on one device by hand,
// on one rank and on four.
#include <cmath>
#include <memory>
#include <string>

#include "core/autograd/node.h"
#include "examples.h"
#include "nn/layers.h"

using namespace stagecoach;

/// Returns f(a, b) for each pair of elements, on a CPU.
template <class Function>
Tensor elementwise(const Tensor& a, const Tensor& b, const Function& f) {
  Tensor y = Tensor::empty(a.shape(), a.dtype(), a.device());
  const float* left = a.data<float>();
  const float* right = b.data<float>();
  float* out = y.mutable_data<float>();
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    out[i] = f(left[i], right[i]);
  }
  return y;
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// The backward of swish: what it needs of the forward is saved, and gradients are returned one per input.
class SwishNode final : public Node {
 public:
  explicit SwishNode(const Tensor& x) : Node("swish", {x}) { save("x", x); }
  Gradients backward(const Tensor& grad_output, const NeedsInputGrad&) override {
    return {elementwise(grad_output, saved("x"),
                        [](float grad, float x) { return grad * sigmoid(x) * (1 + x * (1 - sigmoid(x))); })};
  }
};

Tensor swish(const Tensor& x) {
  const Tensor y = elementwise(x, x, [](float value, float) { return value * sigmoid(value); });
  return recorded<SwishNode>(y, {&x}, x);  // makes the node if x needs a gradient
}

class Swish final : public Module {
 public:
  Tensor forward(const Tensor& x) override { return swish(x); }
  Shape output_shape(const Shape& input) const override { return input; }
};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 4; ++i) {
    model->add("fc" + std::to_string(i), std::make_shared<Linear>(16, 16));
    model->add("swish" + std::to_string(i), std::make_shared<Swish>());
  }
  return model;
}

int main() {
  const Tensor x = random_numbers({22, 16}, "x");
  const Tensor target = random_numbers({22, 16}, "target");
  const auto alone = make_model();
  alone->materialize(1);
  Sgd optimizer(alone->named_parameters());
  Pipe one(make_model(), {.chunks = kChunks, .ranks = 1, .loss = kSquares});
  Pipe four(make_model(), {.chunks = kChunks, .ranks = 4, .loss = kSquares});
  for (int step = 0; step < 20; ++step) {
    backward_by_hand(*alone, x, target, kSquares);
    optimizer.step();
    optimizer.zero_grad();
    one.train_step(x, target);
    four.train_step(x, target);
  }
  print_comparison({weights_in(*alone), weights_in(one.model()), weights_in(four.model())});
  return 0;
}
