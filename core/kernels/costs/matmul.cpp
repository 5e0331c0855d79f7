#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

void add_matmul(KernelCosts& table) {
  table.matmul = [](const Tensor& a, const Tensor& b, const Transposed& transposed, Tensor& out) -> KernelCost {
    const std::int64_t m = out.size(1);
    const std::int64_t n = out.size(2);
    const std::int64_t k = a.size(transposed.a ? 1 : 2);
    const std::int64_t flops = 2 * out.numel() * k;
    const CpuVectors vectors(a.dtype());
    const std::int64_t workspace = (transposed.b ? k * n : 0) + vectors.product_tail(m, k, n);
    return {
        .kind = CostKind::matrix_product,
        .dtype = a.dtype(),
        .flops = flops,
        .bytes_read = bytes_of(a, b),
        .bytes_written = bytes_of(out),
        .cpu = {.workspace_bytes = element_bytes(workspace, a.dtype()), .idle_flops = vectors.idle_flops(flops, n)}};
  };
}

}  // namespace stagecoach::costs
