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
  const bool are_classes = predictions.dtype() == DType::int32 && predictions.shape() == labels.shape();
  STAGECOACH_CHECK(count.numel() == 1 && count.dtype() == DType::int32 && count.device() == predictions.device(),
                   "count_correct: expected an int32 count [] on the device of the predictions, got {} and {}",
                   describe(count), describe(predictions));
  const Kernels& on = kernels(predictions.device());
  if (are_classes) {
    check_matches("count_correct", predictions, labels);
    on.count_equal(predictions, labels, count);
  } else {
    on.count_correct(as_rows(predictions), labels_of_rows("count_correct", predictions, labels), count);
  }
}

}  // namespace stagecoach
