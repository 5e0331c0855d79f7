#include "core/cuda_backend.h"
#include "core/error.h"

namespace stagecoach::cuda {
namespace {

[[noreturn]] void absent(const char* what) {
  throw UsageError(fmt::format("{}: this build has no CUDA backend; use --device cpu", what));
}

}  // namespace

void require_device(int index) { absent(fmt::format("cuda:{}", index).c_str()); }
stagecoach::Allocator& allocator(int index) { absent(fmt::format("allocator of cuda:{}", index).c_str()); }
const Kernels& kernels() { absent("kernels of cuda"); }

}  // namespace stagecoach::cuda
