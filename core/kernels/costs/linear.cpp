#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/cuda/product_plan.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {

BackendCost cuda_product(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, int more_columns) {
  if (m * n == 0) {
    return {.launches = 0};
  }
  if (std::max({m * n, m * k, n * k}) > cuda::kMaxElements) {
    return {};  // more than the kernels take, and more blocks than need splits
  }
  cuda::ProductExtents e{static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
  const auto kernel = dtype == DType::float64 ? cuda::ProductKernel::tiled : cuda::ProductKernel::registers;
  const cuda::ProductPlan plan = cuda::plan_product(kernel, e);
  const std::int64_t tiles = plan.tile.blocks(e);
  const std::int64_t idle_flops = 2 * k * (tiles * plan.tile.m * plan.tile.n - m * n);
  e.n += more_columns;
  return {.launches = plan.splits > 1 ? 2 : 1,
          .workspace_bytes = element_bytes(plan.workspace_elements(e), dtype),
          .idle_flops = idle_flops};
}

namespace {

/// Returns the operations of the three products of a linear layer, x [N, I] and y [N, O].
std::int64_t linear_flops(const Tensor& x, const Tensor& y) { return 2 * x.numel() * y.size(1); }

KernelCost linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  const CpuVectors vectors(x.dtype());
  return {.kind = CostKind::matrix_product,
          .dtype = x.dtype(),
          .flops = linear_flops(x, y),
          .bytes_read = bytes_of(x, weight, bias),
          .bytes_written = bytes_of(y),
          .cpu = {.workspace_bytes = element_bytes(vectors.padded(x.size(0)) * (x.size(1) + y.size(1)), x.dtype()),
                  .idle_flops = vectors.idle_flops(linear_flops(x, y), x.size(0))},
          .cuda = cuda_product(x.size(0), y.size(1), x.size(1), x.dtype())};
}

KernelCost linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) {
  const DType dtype = grad_y.dtype();
  const CpuVectors vectors(dtype);
  const std::int64_t samples = grad_x.size(0);
  const std::int64_t inputs = grad_x.size(1);
  const std::int64_t outputs = grad_y.size(1);
  return {.kind = CostKind::matrix_product,
          .dtype = dtype,
          .flops = linear_flops(grad_x, grad_y),
          .bytes_read = bytes_of(grad_y, weight),
          .bytes_written = bytes_of(grad_x),
          .cpu = {.workspace_bytes = element_bytes(vectors.product_tail(samples, outputs, inputs), dtype),
                  .idle_flops = vectors.idle_flops(linear_flops(grad_x, grad_y), inputs)},
          .cuda = cuda_product(samples, inputs, outputs, dtype)};
}

KernelCost linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight, Tensor& grad_bias) {
  const DType dtype = grad_y.dtype();
  const std::int64_t samples = x.size(0);
  const std::int64_t inputs = x.size(1);
  const std::int64_t outputs = grad_y.size(1);
  const bool has_weight = grad_weight.defined();
  const std::int64_t product_flops = has_weight ? linear_flops(x, grad_y) : 0;
  const CpuVectors vectors(dtype);
  const std::int64_t tail = has_weight ? vectors.product_tail(outputs, samples, inputs) : 0;
  return {
      .kind = has_weight ? CostKind::matrix_product : CostKind::reduction,
      .dtype = dtype,
      .flops = product_flops + (grad_bias.defined() ? grad_y.numel() : 0),
      .bytes_read = has_weight ? bytes_of(grad_y, x) : bytes_of(grad_y),
      .bytes_written = bytes_of(grad_weight, grad_bias),
      .cpu = {.workspace_bytes = element_bytes(tail, dtype), .idle_flops = vectors.idle_flops(product_flops, inputs)},
      .cuda = cuda_product(outputs, inputs, samples, dtype, grad_bias.defined() ? 1 : 0)};
}

}  // namespace

void add_linear(KernelCosts& table) {
  table.linear = linear;
  table.linear_grad_input = linear_grad_input;
  table.linear_grad_weight = linear_grad_weight;
}

}  // namespace stagecoach::costs
