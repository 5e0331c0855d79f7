#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// Returns a b of the given shape, for factors that may be stored transposed.
Tensor product(const Tensor& a, const Tensor& b, const Transposed& transposed, const Shape& shape) {
  Tensor y = empty_like(a, shape);
  Tensor out = as_matrices(y);
  kernels(a.device()).matmul(as_matrices(a), as_matrices(b), transposed, out);
  return y;
}

class MatmulNode final : public Node {
 public:
  MatmulNode(const Tensor& a, const Tensor& b) : Node("matmul", {a, b}) {
    save("a", a);
    save("b", b);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    const Tensor a = saved("a");
    const Tensor b = saved("b");
    return {needs_input_grad[0] ? product(grad, b, {.b = true}, a.shape()) : Tensor(),
            needs_input_grad[1] ? product(a, grad, {.a = true}, b.shape()) : Tensor()};
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const Span span("matmul", "forward");
  const Shape shape = matmul_shape(a.shape(), b.shape());
  check_matches("matmul", a, b);
  Tensor y = product(a, b, {}, shape);
  return recorded<MatmulNode>(y, {&a, &b}, a, b);
}

}  // namespace stagecoach
