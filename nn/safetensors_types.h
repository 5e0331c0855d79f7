#pragma once
/// @file
/// The element types of safetensors files. A file may have more types than a tensor here; most of the others are
/// converted when they are read.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"

namespace stagecoach::safetensors {

/// A type of the format.
struct ElementType {
  std::string_view name;       ///< in the header, such as "BF16"
  int bits = 0;                ///< of one element in the file
  std::optional<DType> dtype;  ///< of the tensor that it is read as; none if Stagecoach cannot read it
  /// Converts `count` elements at `from` to elements of `dtype` at `into`. Throws DataError for a value that does not
  /// fit. Null if the bytes in the file are those of the tensor.
  void (*convert)(const char* from, std::size_t count, void* into) = nullptr;
};

/// Returns the type of that name; null if the format has none.
const ElementType* find_type(std::string_view name);

/// Returns the type that a tensor is written as.
const ElementType& type_of(DType dtype);

/// Returns the names of the types that Stagecoach can read: "BF16, BOOL, …".
std::string readable_types();

}  // namespace stagecoach::safetensors
