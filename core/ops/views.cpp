#include "core/ops.h"
#include "core/ops/output_shapes.h"
#include "core/ops/record.h"

namespace stagecoach {
namespace {

class ReshapeNode final : public Node {
 public:
  explicit ReshapeNode(const Tensor& x) : Node("reshape", {x}), shape_(x.shape()) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override { return {grad.alias(shape_, grad.offset())}; }

 private:
  Shape shape_;
};

class NarrowNode final : public Node {
 public:
  NarrowNode(const Tensor& x, std::int64_t start) : Node("narrow", {x}), shape_(x.shape()), start_(start) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    Tensor whole = Tensor::zeros(shape_, grad.dtype(), grad.device());
    whole.narrow(start_, grad.size(0)).copy_from(grad);
    return {whole};
  }

 private:
  Shape shape_;
  std::int64_t start_;
};

}  // namespace

Tensor Tensor::reshape(const Shape& shape) const {
  STAGECOACH_CHECK(shape.numel() == numel(), "reshape: expected a shape with as many elements as {}, got {}",
                   describe(*this), to_string(shape));
  Tensor view = alias(shape, offset());
  return recorded<ReshapeNode>(view, {this}, *this);
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> extents) const {
  std::int64_t known = 1;
  int open = -1;
  int dim = 0;
  std::array<std::int64_t, Shape::kMaxDims> filled{};
  STAGECOACH_CHECK(extents.size() <= filled.size(), "reshape: expected at most {1} dimensions, got {0}", extents.size(),
                   filled.size());
  for (const std::int64_t extent : extents) {
    STAGECOACH_CHECK(extent != -1 || open < 0, "reshape: expected at most one extent of -1 for {}, got several",
                     describe(*this));
    if (extent == -1) {
      open = dim;
    } else {
      known *= extent;
    }
    filled[static_cast<std::size_t>(dim++)] = extent;
  }
  if (open >= 0) {
    STAGECOACH_CHECK(known > 0 && numel() % known == 0,
                     "reshape: cannot infer the extent -1: the number of elements of {} is not a multiple of {}, the "
                     "product of the other extents",
                     describe(*this), known);
    filled[static_cast<std::size_t>(open)] = numel() / known;
  }
  return reshape(Shape(filled.data(), dim));
}

Tensor Tensor::narrow(std::int64_t start, std::int64_t length) const {
  STAGECOACH_CHECK(dims() > 0 && start >= 0 && start <= size(0) && length >= 0 && length <= size(0) - start,
                   "narrow: expected rows within {2}, got {0} rows from row {1}", length, start, describe(*this));
  const std::int64_t row = size(0) == 0 ? 0 : numel() / size(0);
  Tensor view = alias(shape().with(0, length), offset() + start * row);
  return recorded<NarrowNode>(view, {this}, *this, start);
}

Tensor flatten(const Tensor& x) { return x.reshape(flatten_shape(x.shape())); }

}  // namespace stagecoach
