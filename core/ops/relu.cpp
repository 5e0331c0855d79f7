#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class ReluNode final : public Node {
 public:
  /// Keeps the output, which a linear layer or convolution behind it keeps too, and not the input, which nobody needs.
  ReluNode(const Tensor& x, const Tensor& y) : Node("relu", {x}) { save("output", y); }
  Gradients backward(const Tensor& grad, const Wanted&) override {
    // In place where nobody else sees the gradient: one pass less through memory.
    Tensor grad_x = grad.is_only_handle() ? grad : empty_beside(grad, grad.shape());
    kernels(grad.device()).relu_grad(grad, saved("output"), grad_x);
    return {grad_x};
  }
};

}  // namespace

Tensor relu(const Tensor& x) {
  const Span span("relu", "forward");
  Tensor y = empty_beside(x, x.shape());
  kernels(x.device()).relu(x, y);
  if (should_record({&x})) {
    y.set_grad_node(std::make_shared<ReluNode>(x, y));
  }
  return y;
}

}  // namespace stagecoach
