#include "chapters/01_single_device/lab/scaled_tanh.h"

#include "chapters/common/not_written.h"
#include "core/autograd/node.h"

namespace stagecoach::lab {

Tensor scaled_tanh(const Tensor& x, const Tensor& scale) {
  // Yours to write. These lines only keep the compiler from warning of names that are not used.
  static_cast<void>(x);
  static_cast<void>(scale);
  throw NotWritten();
}

}  // namespace stagecoach::lab
