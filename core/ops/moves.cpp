// Operations that move elements without computing: between devices, and between one tensor and several, which are cut
// and joined along the rows (the first dimension) or the columns (the last).

#include <algorithm>

#include "core/ops.h"
#include "core/ops/record.h"
#include "core/transfer.h"

namespace stagecoach {
namespace {

thread_local std::map<std::pair<Device, Device>, double> moved_here;

class ToNode final : public Node {
 public:
  explicit ToNode(const Tensor& x) : Node("to", {x}), device_(x.device()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override { return {grad.to(device_)}; }

 private:
  Device device_;
};

/// Copies `part` [n, …] to rows `start` … of `whole` [N, …].
void put_rows(const Tensor& part, std::int64_t start, const Tensor& whole) {
  whole.narrow(start, part.size(0)).copy_from(part);
}

/// Returns rows start … of x [N, …]: [length, …], a view.
Tensor take_rows(const Tensor& x, std::int64_t start, std::int64_t length) { return x.narrow(start, length); }

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

/// The dimension along which tensors are concatenated.
struct CatDimension {
  const char* operation;
  const char* elements;  ///< what the dimension counts
  int dim;               ///< 0, or -1 for the last one
  void (*put)(const Tensor& part, std::int64_t start, const Tensor& whole);
  Tensor (*take)(const Tensor& x, std::int64_t start, std::int64_t length);
};
constexpr CatDimension kCatRows{"cat", "rows", 0, put_rows, take_rows};
constexpr CatDimension kCatColumns{"cat_columns", "columns", -1, put_columns, take_columns};

class CatNode final : public Node {
 public:
  CatNode(const CatDimension& along, const std::vector<Tensor>& parts) : Node(along.operation, parts), along_(along) {
    for (const Tensor& part : parts) {
      lengths_.push_back(part.size(along.dim));
    }
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients(lengths_.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      if (needs_input_grad[i]) {
        gradients[i] = along_.take(grad, start, lengths_[i]);
      }
      start += lengths_[i];
    }
    return gradients;
  }

 private:
  const CatDimension& along_;
  std::vector<std::int64_t> lengths_;
};

Tensor cat_along(const CatDimension& along, const std::vector<Tensor>& parts) {
  const Span span(along.operation, "forward");
  STAGECOACH_CHECK(!parts.empty(), "{}: expected at least one part, got none", along.operation);
  const Tensor& first = parts.front();
  std::int64_t length = 0;
  for (const Tensor& part : parts) {
    STAGECOACH_CHECK(part.dims() > 0 && part.dims() == first.dims() &&
                         part.shape().with(along.dim, 0) == first.shape().with(along.dim, 0),
                     "{}: expected parts that differ only in their {}, got {} and {}", along.operation, along.elements,
                     describe(first), describe(part));
    check_matches(along.operation, first, part);
    length += part.size(along.dim);
  }
  Tensor whole = empty_like(first, first.shape().with(along.dim, length));
  std::int64_t start = 0;
  for (const Tensor& part : parts) {
    along.put(part, start, whole);
    start += part.size(along.dim);
  }
  const auto needs_grad = [](const Tensor& part) { return part.requires_grad(); };
  if (grad_enabled() && std::any_of(parts.begin(), parts.end(), needs_grad)) {
    whole.set_grad_node(std::make_shared<CatNode>(along, parts));
  }
  return whole;
}

}  // namespace

const std::map<std::pair<Device, Device>, double>& bytes_moved() { return moved_here; }

Tensor Tensor::to(Device device) const {
  if (device == this->device()) {
    return *this;
  }
  moved_here[{this->device(), device}] += static_cast<double>(bytes());
  Tensor moved = empty(shape(), dtype(), device);
  moved.copy_from(*this);
  return recorded<ToNode>(moved, {this}, *this);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t rows) {
  STAGECOACH_CHECK(x.dims() > 0 && rows > 0,
                   "split: expected input [N, …] and at least one row per part, got {} and {}", describe(x), rows);
  std::vector<Tensor> parts;
  for (std::int64_t start = 0; start < x.size(0); start += rows) {
    parts.push_back(x.narrow(start, std::min(rows, x.size(0) - start)));
  }
  return parts;
}

Tensor narrow_columns(const Tensor& x, std::int64_t start, std::int64_t length) {
  const Span span("narrow_columns", "forward");
  STAGECOACH_CHECK(x.dims() > 0 && start >= 0 && start <= x.size(-1) && length >= 0 && length <= x.size(-1) - start,
                   "narrow_columns: expected columns within {2}, got {0} columns from column {1}", length, start,
                   describe(x));
  Tensor taken = take_columns(x, start, length);
  return recorded<NarrowColumnsNode>(taken, {&x}, x, start);
}

Tensor cat(const std::vector<Tensor>& parts) { return cat_along(kCatRows, parts); }

Tensor cat_columns(const std::vector<Tensor>& parts) { return cat_along(kCatColumns, parts); }

}  // namespace stagecoach
