#include "core/shape.h"

#include <algorithm>

#include "core/base/error.h"

namespace stagecoach {

Shape::Shape(std::initializer_list<std::int64_t> extents) : Shape(extents.begin(), static_cast<int>(extents.size())) {}

Shape::Shape(const std::int64_t* extents, int dims) : dims_(dims) {
  STAGECOACH_CHECK(dims >= 0 && dims <= kMaxDims, "shape: expected at most {} dimensions, got {}", kMaxDims, dims);
  std::copy(extents, extents + dims, extents_.begin());
  // No memory holds more elements of 8 bytes than this; a shape within the limit overflows no index.
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;
  std::int64_t product = 1;
  for (const std::int64_t extent : *this) {
    STAGECOACH_CHECK(extent >= 0, "shape: expected extents of 0 or more, got {} in {}", extent, to_string(*this));
    STAGECOACH_CHECK(extent <= kMaxElements / std::max<std::int64_t>(product, 1),
                     "shape: expected at most 2^58 elements, got {}", to_string(*this));
    product *= std::max<std::int64_t>(extent, 1);
  }
}

int Shape::checked(int dim) const {
  const int index = dim < 0 ? dim + dims_ : dim;
  STAGECOACH_CHECK(index >= 0 && index < dims_, "shape: dimension {} is out of range for shape {}", dim,
                   to_string(*this));
  return index;
}

std::int64_t Shape::operator[](int dim) const { return extents_[static_cast<std::size_t>(checked(dim))]; }

Shape Shape::with(int dim, std::int64_t extent) const {
  Shape changed = *this;
  changed.extents_[static_cast<std::size_t>(checked(dim))] = extent;
  return Shape(changed.begin(), dims_);  // checked again
}

std::int64_t Shape::product(int first, int end) const {
  STAGECOACH_CHECK(first >= 0 && end <= dims_, "shape: expected dimensions of {}, got {} to {}", to_string(*this),
                   first, end - 1);
  std::int64_t product = 1;
  for (int dim = first; dim < end; ++dim) {
    product *= extents_[static_cast<std::size_t>(dim)];
  }
  return product;
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

}  // namespace stagecoach
