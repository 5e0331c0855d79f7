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
    constexpr std::int64_t kPart = 256;  // tokens whose sums a block makes, as in core/kernels/cuda/tokens.cu
    const std::int64_t parts = (tokens.numel() + kPart - 1) / kPart;
    KernelCost cost = reduction(grad_y.numel(), grad_weight, grad_y, tokens);
    cost.cuda = {.launches = parts > 0 ? 2 : 1,
                 .workspace_bytes = element_bytes(grad_y.numel(), grad_y.dtype()) +
                                    element_bytes(parts * grad_weight.size(0), DType::int32)};
    return cost;
  };
}

}  // namespace stagecoach::costs
