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

void count_correct(const Tensor& predictions, const Tensor& labels, Tensor& count) {
  const Span span("count_correct", "forward");
  const bool are_classes = predictions.dims() == 1 && predictions.dtype() == DType::int32;
  STAGECOACH_CHECK(
      (predictions.dims() == 2 || are_classes) && labels.shape() == Shape{predictions.size(0)} && count.numel() == 1,
      "count_correct: expected logits [N, C] or int32 classes [N], labels [N] and count [], got {}, {} "
      "and {}",
      describe(predictions), describe(labels), describe(count));
  STAGECOACH_CHECK(labels.device() == predictions.device() && count.device() == predictions.device() &&
                       labels.dtype() == DType::int32 && count.dtype() == DType::int32,
                   "count_correct: expected int32 labels and count on the device of the predictions, got {}, {} and {}",
                   describe(labels), describe(count), describe(predictions));
  const Kernels& on = kernels(predictions.device());
  are_classes ? on.count_equal(predictions, labels, count) : on.count_correct(predictions, labels, count);
}

}  // namespace stagecoach
