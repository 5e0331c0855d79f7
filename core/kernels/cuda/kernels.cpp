#include "core/kernels/kernels.h"

#include "core/base/error.h"
#include "core/cuda_backend.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

int to_int(std::int64_t count, std::int64_t max) {
  STAGECOACH_CHECK(count <= max, "cuda: expected at most {} elements, got {}; split the batch", max, count);
  return static_cast<int>(count);
}

int kernel_of(const Window& window) {
  STAGECOACH_CHECK(window.kernel <= kMaxKernel,
                   "conv2d on cuda: expected a kernel of at most {0} x {0}, got {1} x {1}; use device `cpu`",
                   kMaxKernel, window.kernel);
  return static_cast<int>(window.kernel);
}

const Kernels& kernels() {
  static const Kernels table = [] {
    Kernels filled{};
    for (AddRows* add_rows :
         {add_attention, add_attention_part, add_batch_norm, add_conv2d, add_elementwise, add_images, add_layer_norm,
          add_linear, add_losses, add_matmul, add_optimizer_steps, add_pool, add_softmax, add_tokens}) {
      add_rows(filled);
    }
    require_rows("cuda", filled);
    return filled;
  }();
  return table;
}

}  // namespace stagecoach::cuda
