#pragma once
/// @file
/// The extents of a tensor, outermost first: [N, C, H, W].

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace stagecoach {

/// At most kMaxDims extents, stored inline so that a shape needs no heap allocation. A shape without dimensions is a
/// scalar and has one element.
class Shape {
 public:
  static constexpr int kMaxDims = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);
  /// Creates a shape from the first `dims` extents at `extents`.
  Shape(const std::int64_t* extents, int dims);

  int dims() const { return dims_; }
  /// Returns the extent of dimension `dim`; a negative `dim` counts from the end. Throws Error if it is out of range.
  std::int64_t operator[](int dim) const;
  /// Returns a copy in which dimension `dim` has extent `extent`.
  Shape with(int dim, std::int64_t extent) const;
  /// Returns the product of all extents.
  std::int64_t numel() const { return product(0, dims_); }
  /// Returns the product of extents `first` … end-1, or 1 if there are none.
  std::int64_t product(int first, int end) const;

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + dims_; }
  bool operator==(const Shape& other) const;

 private:
  int checked(int dim) const;

  std::array<std::int64_t, kMaxDims> extents_{};
  int dims_ = 0;
};

/// Returns a text such as "[64, 3, 32, 32]".
std::string to_string(const Shape& shape);

}  // namespace stagecoach
