#include "nn/tensor_slice.h"

#include "core/base/error.h"
#include "core/kernels/kernels.h"

namespace stagecoach {
namespace {

/// The whole tensor as a matrix: a row per section of the cut dimension, for each index of the dimensions before it.
/// The slice is then a block of columns.
struct Columns {
  std::int64_t rows;
  std::int64_t in_whole;
  std::int64_t in_slice;
  std::int64_t first;
};

Columns columns_of(const TensorSlice& slice) {
  const Shape& whole = slice.whole;
  Columns columns{slice.sections * whole.product(0, slice.dim), whole.numel(), 0, 0};
  columns.in_whole = columns.rows == 0 ? 0 : whole.numel() / columns.rows;
  columns.in_slice = columns.in_whole / slice.parts;
  columns.first = slice.index * columns.in_slice;
  return columns;
}

void check_shape(const Tensor& tensor, const Shape& expected) {
  STAGECOACH_CHECK(tensor.shape() == expected, "tensor slice: expected a tensor of shape {}, got {}",
                   to_string(expected), describe(tensor));
}

}  // namespace

Shape TensorSlice::shape() const {
  if (parts == 1) {
    return whole;
  }
  const std::int64_t extent = whole[dim];
  STAGECOACH_CHECK(extent % (std::int64_t{parts} * sections) == 0,
                   "tensor slice: expected a dimension that {} ranks can share, got dimension {} of {}, in sections of "
                   "{}",
                   parts, dim, to_string(whole), extent / sections);
  return whole.with(dim, extent / parts);
}

std::int64_t TensorSlice::index_in_whole(std::int64_t i) const {
  if (parts == 1) {
    return i;
  }
  const Columns columns = columns_of(*this);
  return i / columns.in_slice * columns.in_whole + columns.first + i % columns.in_slice;
}

Tensor cut(const Tensor& whole, const TensorSlice& slice) {
  check_shape(whole, slice.whole);
  Tensor part = Tensor::empty(slice.shape(), whole.dtype(), whole.device());
  const Columns columns = columns_of(slice);
  Tensor rows = part.alias({columns.rows, columns.in_slice}, 0);
  kernels(whole.device())
      .copy_columns(whole.alias({columns.rows, columns.in_whole}, whole.offset()), columns.first, 0, columns.in_slice,
                    rows);
  return part;
}

void paste(const Tensor& part, const TensorSlice& slice, const Tensor& whole) {
  check_shape(whole, slice.whole);
  check_shape(part, slice.shape());
  const Columns columns = columns_of(slice);
  const Tensor here = part.detach().to(whole.device());
  Tensor rows = whole.alias({columns.rows, columns.in_whole}, whole.offset());
  kernels(whole.device())
      .copy_columns(here.alias({columns.rows, columns.in_slice}, here.offset()), 0, columns.first, columns.in_slice,
                    rows);
}

}  // namespace stagecoach
