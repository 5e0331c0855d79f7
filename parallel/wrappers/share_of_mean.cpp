#include "parallel/wrappers/share_of_mean.h"

#include "core/base/error.h"

namespace stagecoach {

Tensor share_of_mean(const char* wrapper, const Tensor& loss, std::int64_t samples) {
  STAGECOACH_CHECK(loss.defined() && loss.grad_node() && loss.dims() == 0,
                   "{}: expected a loss [] computed from the model's output, got {}; compute it with Reduction::sum, "
                   "without NoGrad",
                   wrapper, describe(loss));
  STAGECOACH_CHECK(samples >= 1, "{}: expected at least 1 sample on all ranks, got {}", wrapper, samples);
  return Tensor::full({}, 1.0 / static_cast<double>(samples), loss.dtype(), loss.device());
}

}  // namespace stagecoach
