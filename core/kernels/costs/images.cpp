#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_images(KernelCosts& table) {
  table.normalize = [](const Tensor& images, const Normalization& /*normalization*/, Tensor& out) {
    return elementwise(2, out, images);
  };
  table.count_correct = [](const Tensor& logits, const Tensor& labels, Tensor& count) {
    KernelCost cost = reduction(logits.numel() - logits.size(0), count, logits, labels, count);
    cost.dtype = logits.dtype();
    return cost;
  };
  table.count_equal = [](const Tensor& a, const Tensor& b, Tensor& count) { return reduction(0, count, a, b, count); };
}

}  // namespace stagecoach::costs
