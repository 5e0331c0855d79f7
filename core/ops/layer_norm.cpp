#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class LayerNormNode final : public Node {
 public:
  LayerNormNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& rstd)
      : Node("layer_norm", {x, weight, bias}) {
    save("input", x);
    save("weight", weight);
    save("mean", mean);
    save("rstd", rstd);
  }

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Kernels& on = kernels(grad.device());
    const Tensor grad_y = as_rows(grad);
    const Tensor x = as_rows(saved("input"));
    Gradients gradients(3);
    if (needs_input_grad[0]) {
      gradients[0] = empty_like(grad, grad.shape());
      Tensor grad_x = as_rows(gradients[0]);
      on.layer_norm_grad_input(grad_y, x, saved("mean"), saved("rstd"), saved("weight"), grad_x);
    }
    if (needs_input_grad[1] || needs_input_grad[2]) {
      gradients[1] = empty_like(grad, {x.size(1)});
      gradients[2] = empty_like(grad, {x.size(1)});
      on.layer_norm_grad_weight(grad_y, x, saved("mean"), saved("rstd"), gradients[1], gradients[2]);
    }
    return gradients;
  }
};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Span span("layer_norm", "forward");
  const Shape shape = layer_norm_shape(x.shape(), weight.shape());
  STAGECOACH_CHECK(bias.shape() == weight.shape(),
                   "layer_norm: expected bias [C] for weight [C], got bias {} and weight {}", describe(bias),
                   describe(weight));
  check_matches("layer_norm", x, weight);
  check_matches("layer_norm", x, bias);
  Tensor y = empty_like(x, shape);
  const Tensor rows = as_rows(x);
  Tensor y_rows = as_rows(y);
  Tensor mean = empty_like(x, {rows.size(0)});
  Tensor rstd = empty_like(x, {rows.size(0)});
  kernels(x.device()).layer_norm(rows, weight, bias, epsilon, y_rows, mean, rstd);
  return recorded<LayerNormNode>(y, {&x, &weight, &bias}, x, weight, bias, mean, rstd);
}

}  // namespace stagecoach
