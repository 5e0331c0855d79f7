#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

/// Returns how the GPU sums a loss: one kernel computes `count` terms, a second one adds them, both in float64.
BackendCost cuda_sum(std::int64_t count) {
  return {.launches = 2, .workspace_bytes = element_bytes(count, DType::float64)};
}

// Per row: a softmax, 5 C - 1; the logarithm of its sum, a difference, and the addition to the loss.
KernelCost cross_entropy(const Tensor& logits, const Tensor& labels, double /*factor*/, Tensor& loss,
                         Tensor& probabilities) {
  const std::int64_t samples = logits.size(0);
  return {.kind = CostKind::reduction,
          .dtype = logits.dtype(),
          .flops = 5 * logits.numel() + 2 * samples + 1,
          .bytes_read = bytes_of(logits, labels),
          .bytes_written = bytes_of(loss, probabilities),
          .cuda = cuda_sum(samples)};
}

KernelCost cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels,
                              double /*factor*/, Tensor& grad_logits) {
  KernelCost cost = elementwise(1, grad_logits, grad_loss, probabilities, labels);
  cost.flops += labels.numel() + 1;
  return cost;
}

KernelCost class_statistics(const Tensor& logits, const Tensor& labels, std::int64_t /*first*/,
                            std::int64_t /*classes*/, Tensor& statistics) {
  return reduction(4 * logits.numel() - logits.size(0), statistics, logits, labels);
}

// Per sample and slice: a comparison, and 5 for the two sums; per sample: a logarithm, and 3 for its loss.
KernelCost combined_cross_entropy(const Tensor& statistics, double /*factor*/, Tensor& loss, Tensor& normalizers,
                                  Tensor& predictions) {
  const std::int64_t slices = statistics.size(0);
  const std::int64_t samples = statistics.size(1);
  return {.kind = CostKind::elementwise,
          .dtype = statistics.dtype(),
          .flops = samples * (6 * slices + 3) + 1,
          .bytes_read = bytes_of(statistics),
          .bytes_written = bytes_of(loss, normalizers, predictions),
          .cuda = cuda_sum(samples)};
}

// As if every label were in this slice.
KernelCost class_slice_grad(const Tensor& grad_loss, const Tensor& logits, const Tensor& labels,
                            const Tensor& normalizers, std::int64_t /*first*/, double /*factor*/, Tensor& grad_logits) {
  KernelCost cost = elementwise(4, grad_logits, grad_loss, logits, labels, normalizers);
  cost.flops += labels.numel() + 1;
  return cost;
}

KernelCost squared_error(const Tensor& a, const Tensor& b, double /*factor*/, Tensor& loss) {
  constexpr std::int64_t kTermsPerBlock = 2048;
  KernelCost cost = reduction(3 * a.numel() + 1, loss, a, b);
  cost.cuda = cuda_sum(std::clamp<std::int64_t>(a.numel() / kTermsPerBlock, 1, 256));
  return cost;
}

KernelCost squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double /*factor*/,
                              Tensor& grad_a) {
  KernelCost cost = elementwise(2, grad_a, grad_loss, a, b);
  cost.flops += 1;
  return cost;
}

}  // namespace

void add_losses(KernelCosts& table) {
  table.cross_entropy = cross_entropy;
  table.cross_entropy_grad = cross_entropy_grad;
  table.class_statistics = class_statistics;
  table.combined_cross_entropy = combined_cross_entropy;
  table.class_slice_grad = class_slice_grad;
  table.squared_error = squared_error;
  table.squared_error_grad = squared_error_grad;
}

}  // namespace stagecoach::costs
