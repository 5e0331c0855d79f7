#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_tokens(KernelCosts& table) {
  table.transpose = [](const Tensor& x, Tensor& y) { return elementwise(0, y, x); };
  table.add_broadcast = [](const Tensor& x, const Tensor& b, Tensor& y) { return elementwise(1, y, x, b); };
  table.token_mean = [](const Tensor& x, Tensor& y) { return reduction(x.numel() + y.numel(), y, x); };
  table.token_mean_grad = [](const Tensor& grad_y, Tensor& grad_x) { return elementwise(1, grad_x, grad_y); };
  table.embedding = [](const Tensor& tokens, const Tensor& weight, Tensor& y) {
    return elementwise(0, y, tokens, weight);
  };
  table.embedding_grad = [](const Tensor& grad_y, const Tensor& tokens, Tensor& grad_weight) {
    return reduction(grad_y.numel(), grad_weight, grad_y, tokens);
  };
}

}  // namespace stagecoach::costs
