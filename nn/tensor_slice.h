#pragma once
/// @file
/// A slice of a tensor: what one rank holds of a weight that is cut over several ranks.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace stagecoach {

/// Part `index` of `parts` equal parts of a tensor, cut along dimension `dim`. If that dimension consists of several
/// `sections` of equal size (a weight that computes queries, keys and values has three), each section is cut, and the
/// slice has the parts of all sections, one after another. By default the slice is the whole tensor.
struct TensorSlice {
  Shape whole = {};  ///< the shape of the whole tensor
  int dim = 0;
  int parts = 1;
  int index = 0;
  int sections = 1;

  /// Returns the shape of the slice. Throws Error unless the parts are of equal size.
  Shape shape() const;
  /// Returns the index in the whole tensor, both row-major, of element `i` of the slice.
  std::int64_t index_in_whole(std::int64_t i) const;
};

/// Slices under the names of their whole tensors, in a fixed order.
using NamedSlices = std::vector<std::pair<std::string, TensorSlice>>;

/// Returns a copy of a slice of `whole`, without history.
Tensor cut(const Tensor& whole, const TensorSlice& slice);
/// Copies a slice to its place in `whole`, from any device.
void paste(const Tensor& part, const TensorSlice& slice, const Tensor& whole);

}  // namespace stagecoach
