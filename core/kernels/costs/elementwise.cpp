#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_elementwise(KernelCosts& table) {
  table.fill = [](double /*value*/, Tensor& out) { return elementwise(0, out); };
  table.copy = [](const Tensor& source, Tensor& out) { return elementwise(0, out, source); };
  table.convert = [](const Tensor& source, Tensor& out) { return elementwise(0, out, source); };
  table.add = [](const Tensor& a, const Tensor& b, Tensor& out) { return elementwise(1, out, a, b); };
  table.add_scaled = [](const Tensor& x, double /*factor*/, Tensor& sum) { return elementwise(2, sum, x, sum); };
  table.scale = [](const Tensor& x, double /*factor*/, Tensor& out) { return elementwise(1, out, x); };
  table.relu = [](const Tensor& x, Tensor& out) { return elementwise(1, out, x); };
  table.relu_grad = [](const Tensor& grad_y, const Tensor& y, Tensor& out) { return elementwise(1, out, grad_y, y); };
  table.gelu = [](const Tensor& x, GeluForm form, Tensor& out) {
    return elementwise(form == GeluForm::exact ? 5 : 9, out, x);
  };
  table.gelu_grad = [](const Tensor& grad_y, const Tensor& x, GeluForm form, Tensor& out) {
    return elementwise(form == GeluForm::exact ? 11 : 19, out, grad_y, x);
  };
  table.accumulate = [](const Tensor& x, Tensor& sum) { return elementwise(1, sum, x, sum); };
  table.copy_columns = [](const Tensor& source, std::int64_t /*from*/, std::int64_t /*to*/, std::int64_t count,
                          Tensor& out) -> KernelCost {
    const std::int64_t bytes = element_bytes(source.size(0) * count, out.dtype());
    return {.kind = CostKind::copy, .dtype = out.dtype(), .bytes_read = bytes, .bytes_written = bytes};
  };
  table.dropout = [](const Tensor& x, const DropoutMask& /*mask*/, Tensor& y) { return elementwise(1, y, x); };
  table.increment = [](std::span<Tensor> counters) -> KernelCost {
    constexpr int kCountersPerLaunch = 128;
    const auto count = static_cast<int>(counters.size());
    const std::int64_t bytes = element_bytes(count, DType::int32);
    return {.kind = CostKind::elementwise,
            .dtype = DType::int32,
            .bytes_read = bytes,
            .bytes_written = bytes,
            .cuda = {.launches = (count + kCountersPerLaunch - 1) / kCountersPerLaunch}};
  };
}

}  // namespace stagecoach::costs
