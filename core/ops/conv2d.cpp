#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class Conv2dNode final : public Node {
 public:
  Conv2dNode(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window)
      : Node("conv2d", {x, weight, bias}), window_(window) {
    save("input", x);
    save("weight", weight);
  }

  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Kernels& on = kernels(grad.device());
    Gradients gradients(3);
    if (needs_input_grad[0]) {
      gradients[0] = empty_like(grad, saved("input").shape());
      on.conv2d_grad_input(grad, saved("weight"), window_, gradients[0]);
    }
    if (needs_input_grad[1]) {
      gradients[1] = empty_like(grad, saved("weight").shape());
    }
    if (needs_input_grad[2]) {
      gradients[2] = empty_like(grad, {grad.size(1)});
    }
    if (needs_input_grad[1] || needs_input_grad[2]) {
      on.conv2d_grad_weight(grad, saved("input"), window_, gradients[1], gradients[2]);
    }
    return gradients;
  }

 private:
  Window window_;
};

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dSettings& settings) {
  const Span span("conv2d", "forward");
  const Shape shape = conv2d_shape(x.shape(), weight.shape(), settings);
  STAGECOACH_CHECK(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                   "conv2d: expected bias [O] for weight [O, C, K, K], got bias {} and weight {}", describe(bias),
                   describe(weight));
  const Window window{weight.size(2), settings.stride, settings.padding};
  check_matches("conv2d", x, weight);
  check_matches("conv2d", x, bias);
  Tensor y = empty_like(x, shape);
  kernels(x.device()).conv2d(x, weight, bias, window, y);
  return recorded<Conv2dNode>(y, {&x, &weight, &bias}, x, weight, bias, window);
}

}  // namespace stagecoach
