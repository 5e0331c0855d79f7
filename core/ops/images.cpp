#include "core/ops.h"
#include "core/ops/record.h"

namespace stagecoach {

Tensor normalize(const Tensor& images, const Normalization& normalization) {
  const Span span("normalize", "forward");
  STAGECOACH_CHECK(images.dtype() == DType::uint8 && images.dims() == 4 && images.size(1) == 3,
                   "normalize: expected uint8[N, 3, H, W], got {}", describe(images));
  Tensor out = Tensor::empty(images.shape(), DType::float32, images.device());
  kernels(images.device()).normalize(images, normalization, out);
  return out;
}

void count_correct(const Tensor& logits, const Tensor& labels, Tensor& count) {
  const Span span("count_correct", "forward");
  STAGECOACH_CHECK(logits.dims() == 2 && labels.shape() == Shape{logits.size(0)} && count.numel() == 1,
                   "count_correct: expected logits [N, C], labels [N] and count [], got {}, {} and {}",
                   describe(logits), describe(labels), describe(count));
  STAGECOACH_CHECK(labels.device() == logits.device() && count.device() == logits.device() &&
                       labels.dtype() == DType::int32 && count.dtype() == DType::int32,
                   "count_correct: expected int32 labels and count on the device of the logits, got {}, {} and {}",
                   describe(labels), describe(count), describe(logits));
  kernels(logits.device()).count_correct(logits, labels, count);
}

}  // namespace stagecoach
