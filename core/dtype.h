#pragma once
/// @file
/// The element types of a tensor.

#include <cstddef>
#include <cstdint>

#include "core/base/error.h"
#include "core/half.h"

namespace stagecoach {

/// float16 is only for storage and transfer; its one operation is Kernels::convert.
enum class DType : std::uint8_t { float32, float64, int32, uint8, float16 };

/// Returns the size of one element in bytes.
std::size_t size_of(DType dtype);

/// Returns "float32", "float64", "int32", "uint8" or "float16".
const char* name_of(DType dtype);

/// The DType of a C++ type: dtype_of<float> is DType::float32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no tensor holds this type");
  return DType::float32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<Half> = DType::float16;

/// Throws Error unless `dtype` is float32 or float64; `what` names the operation in the message.
void require_floating(DType dtype, const char* what);

/// Calls `body.operator()<float>()` or `<double>()` depending on `dtype`. Throws Error for any other type; `what` names
/// the operation in the message.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, const char* what, Body&& body) {
  require_floating(dtype, what);
  if (dtype == DType::float32) {
    return body.template operator()<float>();
  }
  return body.template operator()<double>();
}

}  // namespace stagecoach
