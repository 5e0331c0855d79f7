#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class AttentionNode final : public Node {
 public:
  AttentionNode(const Tensor& qkv, std::int64_t heads, AttentionMask mask)
      : Node("attention", {qkv}), heads_(heads), mask_(mask) {
    save("qkv", qkv);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const Tensor qkv = saved("qkv");
    Tensor grad_qkv = empty_like(grad, qkv.shape());
    kernels(grad.device()).attention_grad(grad, qkv, heads_, mask_, grad_qkv);
    return {grad_qkv};
  }

 private:
  std::int64_t heads_;
  AttentionMask mask_;
};

}  // namespace

Tensor attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask) {
  const Span span("attention", "forward");
  Tensor y = empty_like(qkv, attention_shape(qkv.shape(), heads));
  kernels(qkv.device()).attention(qkv, heads, mask, y);
  return recorded<AttentionNode>(y, {&qkv}, qkv, heads, mask);
}

}  // namespace stagecoach
