#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class LinearNode final : public Node {
 public:
  LinearNode(const Tensor& x, const Tensor& weight, const Tensor& bias) : Node("linear", {x, weight, bias}) {
    save("input", x);
    save("weight", weight);
  }

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Kernels& on = kernels(grad.device());
    const Tensor grad_rows = as_rows(grad);
    Gradients gradients(3);
    if (needs_input_grad[0]) {
      gradients[0] = empty_like(grad, saved("input").shape());
      Tensor grad_x = as_rows(gradients[0]);
      on.linear_grad_input(grad_rows, saved("weight"), grad_x);
    }
    if (needs_input_grad[1]) {
      gradients[1] = empty_like(grad, saved("weight").shape());
    }
    if (needs_input_grad[2]) {
      gradients[2] = empty_like(grad, {grad.size(-1)});
    }
    if (needs_input_grad[1] || needs_input_grad[2]) {
      on.linear_grad_weight(grad_rows, as_rows(saved("input")), gradients[1], gradients[2]);
    }
    return gradients;
  }
};

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Span span("linear", "forward");
  const Shape shape = linear_shape(x.shape(), weight.shape());
  STAGECOACH_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                   "linear: expected bias [O] for weight [O, I], got bias {} and weight {}", describe(bias),
                   describe(weight));
  check_matches("linear", x, weight);
  check_matches("linear", x, bias);
  Tensor y = empty_like(x, shape);
  Tensor rows = as_rows(y);
  kernels(x.device()).linear(as_rows(x), weight, bias, rows);
  return recorded<LinearNode>(y, {&x, &weight, &bias}, x, weight, bias);
}

}  // namespace stagecoach
