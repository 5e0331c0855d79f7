#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

/// Returns how the GPU sums over all but dimension 1 of x [N, C, …]. `sums` is how many values it keeps per channel,
/// `blocks_per_sm` as in core/kernels/cuda/channel_sums.cuh.
BackendCost cuda_channel_sums(const Tensor& x, int sums, int blocks_per_sm = 8) {
  constexpr std::int64_t kValuesPerPart = 2048;
  constexpr std::int64_t kMaxParts = 128;
  const std::int64_t channels = std::max<std::int64_t>(x.size(1), 1);
  const std::int64_t parts = std::clamp<std::int64_t>(
      std::min(blocks_per_sm * cuda::kTargetBlocks / channels, x.numel() / channels / kValuesPerPart), 1, kMaxParts);
  return {.launches = parts > 1 ? 2 : 1, .workspace_bytes = element_bytes(channels * parts * sums, x.dtype())};
}

KernelCost channel_sums(const Tensor& x, Tensor& out) {
  KernelCost cost = reduction(x.numel(), out, x);
  cost.cuda = cuda_channel_sums(x, 1);
  return cost;
}

KernelCost batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) {
  return {.kind = CostKind::reduction,
          .dtype = x.dtype(),
          .flops = 4 * x.numel() + 2 * mean.numel(),
          .bytes_read = bytes_of(x),
          .bytes_written = bytes_of(mean, variance),
          .cuda = cuda_channel_sums(x, 3, 4)};  // count, mean and squares
}

KernelCost squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) {
  KernelCost cost = reduction(3 * x.numel(), sums, x, mean);
  cost.cuda = cuda_channel_sums(x, 1);
  return cost;
}

KernelCost update_running_statistics(const Tensor& mean, const Tensor& variance, double /*momentum*/,
                                     std::int64_t /*count*/, Tensor& running_mean, Tensor& running_variance) {
  return {.kind = CostKind::elementwise,
          .dtype = mean.dtype(),
          .flops = 6 * mean.numel(),
          .bytes_read = bytes_of(mean, variance, running_mean, running_variance),
          .bytes_written = bytes_of(running_mean, running_variance)};
}

KernelCost rstd(const Tensor& variance, double /*epsilon*/, Tensor& out) { return elementwise(3, out, variance); }

/// Returns the operations per element that repeat a result of batch norm to see whether relu let it pass.
std::int64_t relu_again(Activation activation) { return activation == Activation::relu ? 3 : 0; }

KernelCost batch_norm(const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                      const Tensor& addend, Activation activation, Tensor& y) {
  const int more = (addend.defined() ? 1 : 0) + (activation == Activation::relu ? 1 : 0);
  KernelCost cost = elementwise(3 + more, y, x, mean, rstd, weight, bias, addend);
  cost.flops += weight.numel();
  return cost;
}

KernelCost batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                  const Tensor& weight, const Tensor& bias, Activation activation, Tensor& grad_weight,
                                  Tensor& grad_bias) {
  const bool relu = activation == Activation::relu;  // only it needs the weight and the bias
  return {.kind = CostKind::reduction,
          .dtype = x.dtype(),
          .flops = (4 + relu_again(activation)) * x.numel() + (relu ? 2 : 1) * weight.numel(),
          .bytes_read = bytes_of(grad_y, x, mean, rstd) + (relu ? bytes_of(weight, bias) : 0),
          .bytes_written = bytes_of(grad_weight, grad_bias),
          .cuda = cuda_channel_sums(x, 2)};
}

KernelCost batch_norm_grad_input(const Tensor& grad_y, const Tensor& rstd, const Tensor& weight, Tensor& grad_x) {
  KernelCost cost = elementwise(1, grad_x, grad_y, rstd, weight);
  cost.flops += weight.numel();
  return cost;
}

KernelCost batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                          const Tensor& weight, const Tensor& bias, Activation activation,
                                          const Tensor& grad_weight, const Tensor& grad_bias, std::int64_t /*count*/,
                                          Tensor& grad_x) {
  KernelCost cost =
      elementwise(6 + relu_again(activation), grad_x, grad_y, x, mean, rstd, weight, grad_weight, grad_bias);
  cost.flops += 3 * weight.numel();
  cost.bytes_read += activation == Activation::relu ? bytes_of(bias) : 0;
  return cost;
}

}  // namespace

void add_batch_norm(KernelCosts& table) {
  table.channel_sums = channel_sums;
  table.batch_statistics = batch_statistics;
  table.squared_deviations = squared_deviations;
  table.update_running_statistics = update_running_statistics;
  table.rstd = rstd;
  table.batch_norm = batch_norm;
  table.batch_norm_grad_weight = batch_norm_grad_weight;
  table.batch_norm_grad_input = batch_norm_grad_input;
  table.batch_norm_grad_input_of_batch = batch_norm_grad_input_of_batch;
}

}  // namespace stagecoach::costs
