#include "core/cuda_backend.h"
#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// Returns x [N, …] as [N, the product of the rest], without history.
Tensor as_samples(const Tensor& x) { return x.alias(flatten_shape(x.shape()), x.offset()); }

class AddBroadcastNode final : public Node {
 public:
  AddBroadcastNode(const Tensor& x, const Tensor& b) : Node("add_broadcast", {x, b}), shape_(b.shape()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients{needs_input_grad[0] ? grad : Tensor(), Tensor()};
    if (needs_input_grad[1]) {
      gradients[1] = empty_like(grad, shape_);
      const Tensor samples = as_samples(grad);
      Tensor sums = gradients[1].alias({samples.size(1)}, 0);
      kernels(grad.device()).channel_sums(samples, sums);
    }
    return gradients;
  }

 private:
  Shape shape_;
};

Tensor transposed(const Tensor& x) {
  Tensor y = empty_like(x, transpose_shape(x.shape()));
  Tensor out = as_matrices(y);
  kernels(x.device()).transpose(as_matrices(x), out);
  return y;
}

class TransposeNode final : public Node {
 public:
  explicit TransposeNode(const Tensor& x) : Node("transpose", {x}) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override { return {transposed(grad)}; }
};

class TokenMeanNode final : public Node {
 public:
  explicit TokenMeanNode(const Tensor& x) : Node("token_mean", {x}), shape_(x.shape()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, shape_);
    kernels(grad.device()).token_mean_grad(grad, grad_x);
    return {grad_x};
  }

 private:
  Shape shape_;
};

class EmbeddingNode final : public Node {
 public:
  EmbeddingNode(const Tensor& tokens, const Tensor& weight) : Node("embedding", {weight}), shape_(weight.shape()) {
    save("tokens", tokens);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_weight = empty_like(grad, shape_);
    kernels(grad.device()).embedding_grad(as_rows(grad), saved("tokens"), grad_weight);
    return {grad_weight};
  }

 private:
  Shape shape_;
};

class DropoutNode final : public Node {
 public:
  DropoutNode(const Tensor& x, const DropoutMask& mask) : Node("dropout", {x}), mask_(mask) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_x = empty_like(grad, grad.shape());
    kernels(grad.device()).dropout(grad, mask_, grad_x);
    return {grad_x};
  }

 private:
  DropoutMask mask_;
};

}  // namespace

Tensor add_broadcast(const Tensor& x, const Tensor& b) {
  const Span span("add_broadcast", "forward");
  Tensor y = empty_like(x, add_broadcast_shape(x.shape(), b.shape()));
  check_matches("add_broadcast", x, b);
  kernels(x.device()).add_broadcast(x, b, y);
  return recorded<AddBroadcastNode>(y, {&x, &b}, x, b);
}

Tensor embedding(const Tensor& tokens, const Tensor& weight) {
  const Span span("embedding", "forward");
  STAGECOACH_CHECK(tokens.dtype() == DType::int32 && tokens.device() == weight.device(),
                   "embedding: expected tokens int32 on the weight's device, got {} and weight {}", describe(tokens),
                   describe(weight));
  Tensor y = empty_like(weight, embedding_shape(tokens.shape(), weight.shape()));
  Tensor rows = as_rows(y);
  kernels(weight.device()).embedding(tokens, weight, rows);
  return recorded<EmbeddingNode>(y, {&weight}, tokens, weight);
}

Tensor dropout(const Tensor& x, const DropoutMask& mask) {
  const Span span("dropout", "forward");
  STAGECOACH_CHECK(x.dims() >= 1 && mask.probability >= 0 && mask.probability < 1,
                   "dropout: expected input [N, …] and a probability in [0, 1), got {} and {}", describe(x),
                   mask.probability);
  STAGECOACH_CHECK(
      x.device().type != DeviceType::cuda || cuda::allocator_for_tensors(x.device()) == cuda::allocator(x.device()),
      "dropout: expected a step that is not recorded, got a recording, which would repeat the mask; train without "
      "recording (Replay, Stage::Record)");
  Tensor y = empty_like(x, x.shape());
  kernels(x.device()).dropout(x, mask, y);
  return recorded<DropoutNode>(y, {&x}, x, mask);
}

Tensor transpose(const Tensor& x) {
  const Span span("transpose", "forward");
  Tensor y = transposed(x);
  return recorded<TransposeNode>(y, {&x}, x);
}

Tensor token_mean(const Tensor& x) {
  const Span span("token_mean", "forward");
  Tensor y = empty_like(x, token_mean_shape(x.shape()));
  kernels(x.device()).token_mean(x, y);
  return recorded<TokenMeanNode>(y, {&x}, x);
}

}  // namespace stagecoach
