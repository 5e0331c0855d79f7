#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class MaxPool2dNode final : public Node {
 public:
  MaxPool2dNode(const Tensor& x, const Tensor& argmax, const Window& window)
      : Node("max_pool2d", {x}), shape_(x.shape()), window_(window) {
    save("argmax", argmax);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, shape_);
    kernels(grad.device()).max_pool2d_grad(grad, saved("argmax"), window_, grad_x);
    return {grad_x};
  }

 private:
  Shape shape_;
  Window window_;
};

class GlobalAveragePoolNode final : public Node {
 public:
  explicit GlobalAveragePoolNode(const Tensor& x) : Node("global_average_pool", {x}), shape_(x.shape()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, shape_);
    kernels(grad.device()).global_average_pool_grad(grad, grad_x);
    return {grad_x};
  }

 private:
  Shape shape_;
};

}  // namespace

Tensor max_pool2d(const Tensor& x, const Window& window) {
  const Span span("max_pool2d", "forward");
  const Shape shape = max_pool2d_shape(x.shape(), window);
  Tensor y = empty_like(x, shape);
  Tensor argmax = Tensor::empty(shape, DType::int32, x.device());
  kernels(x.device()).max_pool2d(x, window, y, argmax);
  return recorded<MaxPool2dNode>(y, {&x}, x, argmax, window);
}

Tensor global_average_pool(const Tensor& x) {
  const Span span("global_average_pool", "forward");
  Tensor y = empty_like(x, global_average_pool_shape(x.shape()));
  kernels(x.device()).global_average_pool(x, y);
  return recorded<GlobalAveragePoolNode>(y, {&x}, x);
}

}  // namespace stagecoach
