#include "core/dtype.h"

namespace stagecoach {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
      return 8;
    case DType::uint8:
      return 1;
    case DType::float16:
      return 2;
  }
  fail("size_of: unknown dtype");
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
    case DType::float16:
      return "float16";
  }
  fail("name_of: unknown dtype");
}

void require_floating(DType dtype, const char* what) {
  STAGECOACH_CHECK(dtype == DType::float32 || dtype == DType::float64, "{}: expected float32 or float64, got {}", what,
                   name_of(dtype));
}

}  // namespace stagecoach
