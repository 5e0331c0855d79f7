// Operations that move rows without computing: between devices, and between one tensor and several.

#include <algorithm>

#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class ToNode final : public Node {
 public:
  explicit ToNode(const Tensor& x) : Node("to", {x}), device_(x.device()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override { return {grad.to(device_)}; }

 private:
  Device device_;
};

class CatNode final : public Node {
 public:
  explicit CatNode(const std::vector<Tensor>& parts) : Node("cat", parts) {
    for (const Tensor& part : parts) {
      rows_.push_back(part.size(0));
    }
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad& needs_input_grad) override {
    Gradients gradients(rows_.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (needs_input_grad[i]) {
        gradients[i] = grad.narrow(start, rows_[i]);
      }
      start += rows_[i];
    }
    return gradients;
  }

 private:
  std::vector<std::int64_t> rows_;
};

}  // namespace

Tensor Tensor::to(Device device) const {
  if (device == this->device()) {
    return *this;
  }
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

Tensor cat(const std::vector<Tensor>& parts) {
  const Span span("cat", "forward");
  STAGECOACH_CHECK(!parts.empty(), "cat: expected at least one part, got none");
  const Tensor& first = parts.front();
  std::int64_t rows = 0;
  for (const Tensor& part : parts) {
    STAGECOACH_CHECK(part.dims() > 0 && first.dims() > 0 && part.shape().with(0, 0) == first.shape().with(0, 0),
                     "cat: expected parts that differ only in their rows, got {} and {}", describe(first),
                     describe(part));
    check_matches("cat", first, part);
    rows += part.size(0);
  }
  Tensor whole = empty_like(first, first.shape().with(0, rows));
  std::int64_t start = 0;
  for (const Tensor& part : parts) {
    whole.narrow(start, part.size(0)).copy_from(part);
    start += part.size(0);
  }
  const auto needs_grad = [](const Tensor& part) { return part.requires_grad(); };
  if (grad_enabled() && std::any_of(parts.begin(), parts.end(), needs_grad)) {
    whole.set_grad_node(std::make_shared<CatNode>(parts));
  }
  return whole;
}

}  // namespace stagecoach
