#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_images(KernelCosts& table) {
  table.normalize = [](const Tensor& images, const Normalization& /*normalization*/, Tensor& out) {
    return elementwise(2, out, images);
  };
  table.gather = [](const Tensor& /*rows*/, const Tensor& crops, Tensor& out) {
    return elementwise(0, out, crops, out);  // reads the rows that are copied, not all of them
  };
  table.count_correct = [](const Tensor& logits, const Tensor& labels, Tensor& count) {
    KernelCost cost = reduction(logits.numel() - logits.size(0), count, logits, labels, count);
    cost.dtype = logits.dtype();
    return cost;
  };
  table.count_equal = [](const Tensor& a, const Tensor& b, Tensor& count) { return reduction(0, count, a, b, count); };
}

}  // namespace stagecoach::costs
