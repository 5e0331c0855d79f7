#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class ReluNode final : public Node {
 public:
  /// Saves the output, which a linear layer or convolution after it saves too, rather than the input.
  ReluNode(const Tensor& x, const Tensor& y) : Node("relu", {x}) { save("output", y); }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    // In place if the gradient is donatable: one pass fewer through memory.
    Tensor grad_x = grad.is_donatable() ? grad : empty_like(grad, grad.shape());
    kernels(grad.device()).relu_grad(grad, saved("output"), grad_x);
    return {grad_x};
  }
};

}  // namespace

Tensor relu(const Tensor& x) {
  const Span span("relu", "forward");
  Tensor y = empty_like(x, x.shape());
  kernels(x.device()).relu(x, y);
  return recorded<ReluNode>(y, {&x}, x, y);
}

}  // namespace stagecoach
