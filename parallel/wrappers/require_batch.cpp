#include "parallel/wrappers/require_batch.h"

#include "core/base/throw_if.h"

namespace stagecoach {

void require_images(const char* wrapper, const Tensor& images) {
  throw_if<UsageError>(!images.defined() || images.dtype() != DType::float32 || images.dims() < 2 || images.size(0) < 1,
                       "{}: expected images float32 [N, …] for N of at least 1, got {}; give one batch", wrapper,
                       describe(images));
}

void require_batch(const char* wrapper, const Tensor& images, const Tensor& labels) {
  require_images(wrapper, images);
  throw_if<UsageError>(!labels.defined() || labels.dtype() != DType::int32 || labels.shape() != Shape{images.size(0)},
                       "{}: expected labels int32[{}], one per image, got {}; give the labels of the same batch",
                       wrapper, images.size(0), describe(labels));
}

}  // namespace stagecoach
