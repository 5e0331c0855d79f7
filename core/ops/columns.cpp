// Operations that cut tensors along the last dimension, and join them again.

#include <algorithm>

#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

/// Copies all columns of `part` […, c] to columns `start` … of `whole` […, C].
void put_columns(const Tensor& part, std::int64_t start, const Tensor& whole) {
  Tensor rows = as_rows(whole);
  kernels(part.device()).copy_columns(as_rows(part), 0, start, part.size(-1), rows);
}

/// Returns columns start … of x […, C]: […, length].
Tensor take_columns(const Tensor& x, std::int64_t start, std::int64_t length) {
  Tensor taken = empty_like(x, x.shape().with(x.dims() - 1, length));
  Tensor rows = as_rows(taken);
  kernels(x.device()).copy_columns(as_rows(x), start, 0, length, rows);
  return taken;
}

class NarrowColumnsNode final : public Node {
 public:
  NarrowColumnsNode(const Tensor& x, std::int64_t start)
      : Node("narrow_columns", {x}), shape_(x.shape()), start_(start) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const Tensor whole = Tensor::zeros(shape_, grad.dtype(), grad.device());
    put_columns(grad, start_, whole);
    return {whole};
  }

 private:
  Shape shape_;
  std::int64_t start_;
};

class CatColumnsNode final : public Node {
 public:
  explicit CatColumnsNode(const std::vector<Tensor>& parts) : Node("cat_columns", parts) {
    for (const Tensor& part : parts) {
      columns_.push_back(part.size(-1));
    }
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients(columns_.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (needs_input_grad[i]) {
        gradients[i] = take_columns(grad, start, columns_[i]);
      }
      start += columns_[i];
    }
    return gradients;
  }

 private:
  std::vector<std::int64_t> columns_;
};

}  // namespace

Tensor narrow_columns(const Tensor& x, std::int64_t start, std::int64_t length) {
  const Span span("narrow_columns", "forward");
  STAGECOACH_CHECK(x.dims() > 0 && start >= 0 && start <= x.size(-1) && length >= 0 && length <= x.size(-1) - start,
                   "narrow_columns: expected columns within {2}, got {0} columns from column {1}", length, start,
                   describe(x));
  Tensor taken = take_columns(x, start, length);
  return recorded<NarrowColumnsNode>(taken, {&x}, x, start);
}

Tensor cat_columns(const std::vector<Tensor>& parts) {
  const Span span("cat_columns", "forward");
  STAGECOACH_CHECK(!parts.empty(), "cat_columns: expected at least one part, got none");
  const Tensor& first = parts.front();
  std::int64_t columns = 0;
  for (const Tensor& part : parts) {
    STAGECOACH_CHECK(part.dims() > 0 && part.dims() == first.dims() &&
                         part.shape().with(part.dims() - 1, 0) == first.shape().with(first.dims() - 1, 0),
                     "cat_columns: expected parts that differ only in their columns, got {} and {}", describe(first),
                     describe(part));
    check_matches("cat_columns", first, part);
    columns += part.size(-1);
  }
  Tensor whole = empty_like(first, first.shape().with(first.dims() - 1, columns));
  std::int64_t start = 0;
  for (const Tensor& part : parts) {
    put_columns(part, start, whole);
    start += part.size(-1);
  }
  const auto needs_grad = [](const Tensor& part) { return part.requires_grad(); };
  if (grad_enabled() && std::any_of(parts.begin(), parts.end(), needs_grad)) {
    whole.set_grad_node(std::make_shared<CatColumnsNode>(parts));
  }
  return whole;
}

}  // namespace stagecoach
