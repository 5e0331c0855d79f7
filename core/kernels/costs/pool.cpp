#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_pool(KernelCosts& table) {
  table.max_pool2d = [](const Tensor& x, const Window& window, Tensor& y, Tensor& argmax) -> KernelCost {
    return {.kind = CostKind::elementwise,
            .dtype = x.dtype(),
            .flops = y.numel() * (window.kernel * window.kernel - 1),
            .bytes_read = bytes_of(x),
            .bytes_written = bytes_of(y, argmax)};
  };
  table.max_pool2d_grad = [](const Tensor& grad_y, const Tensor& argmax, const Window& /*window*/,
                             Tensor& grad_x) -> KernelCost {
    return {.kind = CostKind::elementwise,
            .dtype = grad_y.dtype(),
            .flops = grad_y.numel(),
            .bytes_read = bytes_of(grad_y, argmax),
            .bytes_written = bytes_of(grad_x)};
  };
  table.global_average_pool = [](const Tensor& x, Tensor& y) { return reduction(x.numel() + y.numel(), y, x); };
  table.global_average_pool_grad = [](const Tensor& grad_y, Tensor& grad_x) { return elementwise(1, grad_x, grad_y); };
}

}  // namespace stagecoach::costs
