#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_softmax(KernelCosts& table) {
  // Per row: the largest of C, then a difference, an exponential and an addition for each element, and a division.
  table.softmax = [](const Tensor& x, Tensor& y) { return reduction(5 * x.numel() - x.size(0), y, x); };
  table.softmax_grad = [](const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
    return reduction(4 * y.numel(), grad_x, grad_y, y);
  };
  // One logarithm per row, and a difference in place of the division.
  table.log_softmax = [](const Tensor& x, Tensor& y) { return reduction(5 * x.numel(), y, x); };
  table.log_softmax_grad = [](const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
    return reduction(4 * y.numel(), grad_x, grad_y, y);
  };
}

}  // namespace stagecoach::costs
