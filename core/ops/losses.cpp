#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// Returns the factor by which each of `terms` terms of a loss is multiplied; a sum counts the mean of `per_sample`.
double factor_of(const char* loss, const Tensor& x, std::int64_t terms, Reduction reduction,
                 std::int64_t per_sample = 1) {
  if (reduction == Reduction::sum) {
    return 1 / static_cast<double>(per_sample);
  }
  STAGECOACH_CHECK(terms > 0, "{}: expected at least one sample for a mean, got {}; use Reduction::sum", loss,
                   describe(x));
  return 1 / static_cast<double>(terms);
}

class CrossEntropyNode final : public Node {
 public:
  CrossEntropyNode(const Tensor& logits, const Tensor& probabilities, const Tensor& labels, double factor)
      : Node("cross_entropy", {logits}), factor_(factor) {
    save("probabilities", probabilities);
    save("labels", labels);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor grad_logits = empty_like(grad, saved("probabilities").shape());
    Tensor rows = as_rows(grad_logits);
    kernels(grad.device()).cross_entropy_grad(grad, as_rows(saved("probabilities")), saved("labels"), factor_, rows);
    return {grad_logits};
  }

 private:
  double factor_;
};

class SquaredErrorNode final : public Node {
 public:
  SquaredErrorNode(const Tensor& a, const Tensor& b, double factor)
      : Node("mean_squared_error", {a, b}), factor_(factor) {
    save("a", a);
    save("b", b);
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients(2);
    for (const std::size_t i : {0U, 1U}) {
      if (needs_input_grad[i]) {  // for b: the same with the roles exchanged
        const Tensor mine = saved(i == 0 ? "a" : "b");
        const Tensor other = saved(i == 0 ? "b" : "a");
        gradients[i] = empty_like(grad, mine.shape());
        kernels(grad.device()).squared_error_grad(grad, mine, other, factor_, gradients[i]);
      }
    }
    return gradients;
  }

 private:
  double factor_;
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction) {
  const Span span("cross_entropy", "forward");
  const Tensor row_labels = labels_of_rows("cross_entropy", logits, labels);
  const double factor = factor_of("cross_entropy", logits, labels.numel(), reduction, labels_per_sample(labels));
  Tensor loss = empty_like(logits, Shape{});
  Tensor probabilities = empty_like(logits, logits.shape());
  Tensor rows = as_rows(probabilities);
  kernels(logits.device()).cross_entropy(as_rows(logits), row_labels, factor, loss, rows);
  return recorded<CrossEntropyNode>(loss, {&logits}, logits, probabilities, row_labels, factor);
}

Tensor mean_squared_error(const Tensor& a, const Tensor& b, Reduction reduction) {
  const Span span("mean_squared_error", "forward");
  STAGECOACH_CHECK(a.shape() == b.shape(), "mean_squared_error: expected equal shapes, got {} and {}", describe(a),
                   describe(b));
  check_matches("mean_squared_error", a, b);
  const double factor = factor_of("mean_squared_error", a, a.numel(), reduction);
  Tensor loss = empty_like(a, Shape{});
  kernels(a.device()).squared_error(a, b, factor, loss);
  return recorded<SquaredErrorNode>(loss, {&a, &b}, a, b, factor);
}

}  // namespace stagecoach
