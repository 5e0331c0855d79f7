#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

/// The heads of all samples: `count` times queries [S, D], and keys and values [K, D].
struct Parts {
  Parts(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask_)
      : count(q.size(0) * heads),
        queries(q.size(1)),
        keys(kv.size(1)),
        width(q.size(2) / heads),
        dtype(q.dtype()),
        mask(mask_) {}
  std::int64_t count;
  std::int64_t queries;  // S
  std::int64_t keys;     // K
  std::int64_t width;    // D
  DType dtype;
  AttentionMask mask;

  std::int64_t rows() const { return count * queries; }
  std::int64_t all_scores() const { return rows() * keys; }
  /// Returns the number of scores that the mask leaves.
  std::int64_t scores() const {
    return mask == AttentionMask::causal ? all_scores() - rows() * (queries - 1) / 2 : all_scores();
  }
  /// Returns the elements that the CPU needs for one head: matrices [K, D] or [block, D] with a token per row, [D, K]
  /// with one per column, and [block, K] of scores, whose rows are whole vectors.
  std::int64_t workspace(std::int64_t features, std::int64_t block_features, std::int64_t turned,
                         std::int64_t block_scores) const {
    const CpuVectors vectors(dtype);
    const std::int64_t block = std::min<std::int64_t>(queries, 64);
    return (features * keys + block_features * block) * vectors.padded(width) +
           (turned * width + block_scores * block) * vectors.padded(keys);
  }
};

// Those of attention, and two per row for its log_sum.
KernelCost attention_part(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask, Tensor& y,
                          Tensor& log_sums) {
  const Parts p(q, kv, heads, mask);
  return {.kind = CostKind::attention,
          .dtype = p.dtype,
          .flops = p.scores() * (4 * p.width + 6) + p.rows(),
          .bytes_read = bytes_of(q, kv),
          .bytes_written = bytes_of(y, log_sums),
          .cpu = {.workspace_bytes = element_bytes(p.workspace(1, 1, 1, 1), p.dtype)},
          .cuda = {.launches = 3, .workspace_bytes = element_bytes(p.all_scores(), p.dtype)}};
}

// Per score: five products of D terms, the scale, log_sum and exp again, and 3 for the softmax's gradient; per row one
// product of D terms.
KernelCost attention_part_grad(const Tensor& grad_y, const Tensor& y, const Tensor& q, const Tensor& kv,
                               const Tensor& log_sums, std::int64_t heads, AttentionMask mask, Tensor& grad_q,
                               Tensor& grad_kv) {
  const Parts p(q, kv, heads, mask);
  return {.kind = CostKind::attention,
          .dtype = p.dtype,
          .flops = p.scores() * (10 * p.width + 6) + p.rows() * 2 * p.width,
          .bytes_read = bytes_of(grad_y, y, q, kv, log_sums),
          .bytes_written = bytes_of(grad_q, grad_kv),
          .cpu = {.workspace_bytes = element_bytes(p.workspace(3, 3, 2, 2), p.dtype)},
          .cuda = {.launches = 6, .workspace_bytes = element_bytes(2 * p.all_scores(), p.dtype)}};
}

// Per row: the larger log_sum, the new one (2 differences, 2 exp, a sum, log, a sum) and two shares of 2 operations.
KernelCost merge_attention(const Tensor& part, const Tensor& part_log_sums, Tensor& y, Tensor& log_sums) {
  return {.kind = CostKind::elementwise,
          .dtype = y.dtype(),
          .flops = 12 * log_sums.numel() + 3 * y.numel(),
          .bytes_read = bytes_of(part, part_log_sums, y, log_sums),
          .bytes_written = bytes_of(y, log_sums)};
}

}  // namespace

void add_attention_part(KernelCosts& table) {
  table.attention_part = attention_part;
  table.attention_part_grad = attention_part_grad;
  table.merge_attention = merge_attention;
}

}  // namespace stagecoach::costs
