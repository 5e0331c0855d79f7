#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class AddNode final : public Node {
 public:
  AddNode(const Tensor& a, const Tensor& b) : Node("add", {a, b}) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    return {needs_input_grad[0] ? grad : Tensor(), needs_input_grad[1] ? grad : Tensor()};
  }
};

class ScaleNode final : public Node {
 public:
  ScaleNode(const Tensor& x, double factor) : Node("scale", {x}), factor_(factor) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, grad.shape());
    kernels(grad.device()).scale(grad, factor_, grad_x);
    return {grad_x};
  }

 private:
  double factor_;
};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  const Span span("add", "forward");
  const Shape shape = add_shape(a.shape(), b.shape());
  check_matches("add", a, b);
  Tensor sum = empty_like(a, shape);
  kernels(a.device()).add(a, b, sum);
  return recorded<AddNode>(sum, {&a, &b}, a, b);
}

Tensor scale(const Tensor& x, double factor) {
  const Span span("scale", "forward");
  Tensor y = empty_like(x, x.shape());
  kernels(x.device()).scale(x, factor, y);
  return recorded<ScaleNode>(y, {&x}, x, factor);
}

void accumulate(const Tensor& x, Tensor& sum) {
  STAGECOACH_CHECK(x.dims() == 0 && sum.dims() == 0 && sum.dtype() == DType::float64 && sum.device() == x.device(),
                   "accumulate: expected a scalar and a float64 scalar sum on the same device, got {} and {}",
                   describe(x), describe(sum));
  kernels(x.device()).accumulate(x, sum);
}

}  // namespace stagecoach
