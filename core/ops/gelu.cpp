#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class GeluNode final : public Node {
 public:
  GeluNode(const Tensor& x, GeluForm form) : Node("gelu", {x}), form_(form) { save("input", x); }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = grad.is_donatable() ? grad : empty_like(grad, grad.shape());  // see relu.cpp
    kernels(grad.device()).gelu_grad(grad, saved("input"), form_, grad_x);
    return {grad_x};
  }

 private:
  GeluForm form_;
};

}  // namespace

Tensor gelu(const Tensor& x, GeluForm form) {
  const Span span("gelu", "forward");
  Tensor y = empty_like(x, x.shape());
  kernels(x.device()).gelu(x, form, y);
  return recorded<GeluNode>(y, {&x}, x, form);
}

}  // namespace stagecoach
