#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

using ForwardKernel = void (*Kernels::*)(const Tensor&, Tensor&);
using BackwardKernel = void (*Kernels::*)(const Tensor&, const Tensor&, Tensor&);

/// softmax and log_softmax both compute their gradient from their result.
class SoftmaxNode final : public Node {
 public:
  SoftmaxNode(const char* name, const Tensor& x, const Tensor& y, BackwardKernel kernel)
      : Node(name, {x}), kernel_(kernel) {
    save("output", y);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, grad.shape());
    Tensor rows = as_rows(grad_x);
    (kernels(grad.device()).*kernel_)(as_rows(grad), as_rows(saved("output")), rows);
    return {grad_x};
  }

 private:
  BackwardKernel kernel_;
};

Tensor over_rows(const char* name, const Tensor& x, ForwardKernel forward, BackwardKernel backward) {
  const Span span(name, "forward");
  Tensor y = empty_like(x, rows_shape(name, x.shape()));
  Tensor rows = as_rows(y);
  (kernels(x.device()).*forward)(as_rows(x), rows);
  return recorded<SoftmaxNode>(y, {&x}, name, x, y, backward);
}

}  // namespace

Tensor softmax(const Tensor& x) { return over_rows("softmax", x, &Kernels::softmax, &Kernels::softmax_grad); }

Tensor log_softmax(const Tensor& x) {
  return over_rows("log_softmax", x, &Kernels::log_softmax, &Kernels::log_softmax_grad);
}

}  // namespace stagecoach
