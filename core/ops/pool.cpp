#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class MaxPool2dNode final : public Node {
 public:
  MaxPool2dNode(const Tensor& x, const Tensor& picked, const Window& window)
      : Node("max_pool2d", {x}), shape_(x.shape()), window_(window) {
    save("picked", picked);
  }
  Gradients backward(const Tensor& grad, const Wanted&) override {
    Tensor grad_x = empty_beside(grad, shape_);
    kernels(grad.device()).max_pool2d_grad(grad, saved("picked"), window_, grad_x);
    return {grad_x};
  }

 private:
  Shape shape_;
  Window window_;
};

class GlobalAveragePoolNode final : public Node {
 public:
  explicit GlobalAveragePoolNode(const Tensor& x) : Node("global_average_pool", {x}), shape_(x.shape()) {}
  Gradients backward(const Tensor& grad, const Wanted&) override {
    Tensor grad_x = empty_beside(grad, shape_);
    kernels(grad.device()).global_average_pool_grad(grad, grad_x);
    return {grad_x};
  }

 private:
  Shape shape_;
};

}  // namespace

Tensor max_pool2d(const Tensor& x, const Window& window) {
  const Span span("max_pool2d", "forward");
  STAGECOACH_CHECK(x.dims() == 4, "max_pool2d: input {} is not [N, C, H, W]", describe(x));
  STAGECOACH_CHECK(
      window.kernel >= 1 && window.stride >= 1 && window.padding >= 0 && 2 * window.padding <= window.kernel,
      "max_pool2d: kernel {}, stride {}, padding {}", window.kernel, window.stride, window.padding);
  STAGECOACH_CHECK(x.size(2) + 2 * window.padding >= window.kernel && x.size(3) + 2 * window.padding >= window.kernel,
                   "max_pool2d: input {} with padding {} is smaller than the kernel {}", describe(x), window.padding,
                   window.kernel);
  STAGECOACH_CHECK(x.size(2) > 0 && x.size(3) > 0, "max_pool2d: the planes of {} are empty", describe(x));
  const Shape shape{x.size(0), x.size(1), window.positions(x.size(2)), window.positions(x.size(3))};
  Tensor y = empty_beside(x, shape);
  Tensor picked = Tensor::empty(shape, DType::int32, x.device());
  kernels(x.device()).max_pool2d(x, window, y, picked);
  if (should_record({&x})) {
    y.set_grad_node(std::make_shared<MaxPool2dNode>(x, picked, window));
  }
  return y;
}

Tensor global_average_pool(const Tensor& x) {
  const Span span("global_average_pool", "forward");
  STAGECOACH_CHECK(x.dims() == 4, "global_average_pool: input {} is not [N, C, H, W]", describe(x));
  STAGECOACH_CHECK(x.size(2) > 0 && x.size(3) > 0, "global_average_pool: the planes of {} are empty", describe(x));
  Tensor y = empty_beside(x, {x.size(0), x.size(1)});
  kernels(x.device()).global_average_pool(x, y);
  if (should_record({&x})) {
    y.set_grad_node(std::make_shared<GlobalAveragePoolNode>(x));
  }
  return y;
}

}  // namespace stagecoach
