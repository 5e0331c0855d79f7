#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/fixed_order_sum.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

/// Returns the cost of a step with `flops` operations per element of the parameters. All parameters are of one type.
KernelCost optimizer_step(std::span<ParameterUpdate> updates, std::int64_t flops, bool reads_count) {
  constexpr int kUpdatesPerLaunch = 48;
  const auto count = static_cast<int>(updates.size());
  KernelCost cost{.kind = CostKind::elementwise,
                  .dtype = updates.empty() ? DType::float32 : updates.front().parameter.dtype(),
                  .cuda = {.launches = (count + kUpdatesPerLaunch - 1) / kUpdatesPerLaunch}};
  for (const ParameterUpdate& update : updates) {
    cost.flops += flops * update.parameter.numel();
    cost.bytes_read += bytes_of(update.grad, update.parameter) + (reads_count ? bytes_of(update.count) : 0);
    cost.bytes_written += bytes_of(update.parameter);
    for (const Tensor& state : update.state) {
      cost.bytes_read += bytes_of(state);
      cost.bytes_written += bytes_of(state);
    }
  }
  return cost;
}

KernelCost sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) {
  return optimizer_step(updates, settings.momentum == 0 ? 4 : 6, false);
}

KernelCost adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) {
  return optimizer_step(updates, settings.decoupled_decay ? 14 : 15, true);
}

KernelCost adagrad_step(std::span<ParameterUpdate> updates, const AdagradSettings& /*settings*/) {
  return optimizer_step(updates, 9, false);
}

/// Returns the cost of a call that reads all `tensors`, with `flops` operations per element.
KernelCost pass_over(std::span<const Tensor> tensors, CostKind kind, std::int64_t flops) {
  KernelCost cost{.kind = kind, .dtype = tensors.empty() ? DType::float32 : tensors.front().dtype()};
  for (const Tensor& tensor : tensors) {
    cost.flops += flops * tensor.numel();
    cost.bytes_read += bytes_of(tensor);
  }
  return cost;
}

constexpr std::int64_t kTensorsPerLaunch = 128;

KernelCost sums_of_squares(std::span<const Tensor> tensors, Tensor& sums) {
  KernelCost cost = pass_over(tensors, CostKind::reduction, 2);
  cost.bytes_written = bytes_of(sums);
  std::int64_t blocks = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t of_tensor = (tensor.numel() + kSquaresBlock - 1) / kSquaresBlock;
    blocks += of_tensor;
    cost.cpu.workspace_bytes = std::max(cost.cpu.workspace_bytes, element_bytes(of_tensor, DType::float64));
  }
  const auto count = static_cast<std::int64_t>(tensors.size());
  cost.cuda.workspace_bytes = element_bytes(blocks, DType::float64);
  cost.cuda.launches = static_cast<int>(2 * ((count + kTensorsPerLaunch - 1) / kTensorsPerLaunch));
  return cost;
}

KernelCost clip_to_norm(const Tensor& squares, double /*max_norm*/, std::span<Tensor> gradients) {
  KernelCost cost = pass_over(gradients, CostKind::elementwise, 1);
  cost.flops += squares.numel() + 4;  // the norm, and the factor
  cost.bytes_written = cost.bytes_read;
  cost.bytes_read += bytes_of(squares);
  const auto count = static_cast<std::int64_t>(gradients.size());
  cost.cuda.workspace_bytes = element_bytes(1, DType::float64);
  cost.cuda.launches = static_cast<int>(1 + (count + kTensorsPerLaunch - 1) / kTensorsPerLaunch);
  return cost;
}

}  // namespace

void add_optimizer_steps(KernelCosts& table) {
  table.sums_of_squares = sums_of_squares;
  table.clip_to_norm = clip_to_norm;
  table.adagrad_step = adagrad_step;
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
}

}  // namespace stagecoach::costs
