#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {

Tensor normalize(const Tensor& images, const Normalization& normalization) {
  const Span span("normalize", "forward");
  STAGECOACH_CHECK(images.dtype() == DType::uint8 && images.dims() == 4 && images.size(1) == 3,
                   "normalize: {} is not uint8[N, 3, H, W]", describe(images));
  Tensor out = Tensor::empty(images.shape(), DType::float32, images.device());
  kernels(images.device()).normalize(images, normalization, out);
  return out;
}

void count_correct(const Tensor& scores, const Tensor& labels, Tensor& count) {
  const Span span("count_correct", "forward");
  STAGECOACH_CHECK(scores.dims() == 2 && labels.shape() == Shape{scores.size(0)} && count.numel() == 1,
                   "count_correct: scores {}, labels {}, count {}", describe(scores), describe(labels),
                   describe(count));
  STAGECOACH_CHECK(labels.device() == scores.device() && count.device() == scores.device() &&
                       labels.dtype() == DType::int32 && count.dtype() == DType::int32,
                   "count_correct: labels {} and count {} must be int32 on the device of scores {}", describe(labels),
                   describe(count), describe(scores));
  kernels(scores.device()).count_correct(scores, labels, count);
}

}  // namespace stagecoach
