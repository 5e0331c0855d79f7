#include "core/kernels/costs/cost.h"
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

KernelCost adam_step(std::span<ParameterUpdate> updates, const AdamSettings& /*settings*/) {
  return optimizer_step(updates, 15, true);
}

}  // namespace

void add_optimizer_steps(KernelCosts& table) {
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
}

}  // namespace stagecoach::costs
