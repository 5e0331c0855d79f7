#include "chapters/01_single_device/lab/accumulate.h"

#include "chapters/common/not_written.h"

namespace stagecoach::lab {

double accumulate(Module& model, const std::vector<Samples>& microbatches) {
  // Yours to write. These lines only keep the compiler from warning of names that are not used.
  static_cast<void>(model);
  static_cast<void>(microbatches);
  throw NotWritten();
}

}  // namespace stagecoach::lab
