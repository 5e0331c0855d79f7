#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

// Per row: 2 divisions by C, and 3 for 1 / sqrt(variance + epsilon). Per element: 4 for mean and variance, 3 for y.
KernelCost layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double /*epsilon*/, Tensor& y,
                      Tensor& mean, Tensor& rstd) {
  return {.kind = CostKind::reduction,
          .dtype = x.dtype(),
          .flops = 7 * x.numel() + 5 * x.size(0),
          .bytes_read = bytes_of(x, weight, bias),
          .bytes_written = bytes_of(y, mean, rstd)};
}

KernelCost layer_norm_grad_input(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                 const Tensor& weight, Tensor& grad_x) {
  return reduction(10 * x.numel() + 2 * x.size(0), grad_x, grad_y, x, mean, rstd, weight);
}

KernelCost layer_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                  Tensor& grad_weight, Tensor& grad_bias) {
  constexpr std::int64_t kRowsPerPart = 128;
  const std::int64_t parts = std::clamp<std::int64_t>(x.size(0) / kRowsPerPart, 1, 256);
  const bool one_part = parts == 1;
  return {.kind = CostKind::reduction,
          .dtype = x.dtype(),
          .flops = 5 * x.numel(),
          .bytes_read = bytes_of(grad_y, x, mean, rstd),
          .bytes_written = bytes_of(grad_weight, grad_bias),
          .cuda = {.launches = one_part ? 1 : 2,
                   .workspace_bytes = one_part ? 0 : element_bytes(2 * parts * x.size(1), x.dtype())}};
}

}  // namespace

void add_layer_norm(KernelCosts& table) {
  table.layer_norm = layer_norm;
  table.layer_norm_grad_input = layer_norm_grad_input;
  table.layer_norm_grad_weight = layer_norm_grad_weight;
}

}  // namespace stagecoach::costs
