#include <algorithm>

#include "core/kernels/costs/cost.h"
#include "core/kernels/groups.h"

namespace stagecoach::costs {
namespace {

/// The heads of all samples: `count` times queries, keys and values [T, D].
struct Heads {
  Heads(const Tensor& y, std::int64_t heads, AttentionMask mask_)
      : count(y.size(0) * heads),
        tokens(y.size(1)),
        width(y.size(2) / heads),
        dtype(y.dtype()),
        mask(mask_),
        fused_on_cuda(dtype == DType::float32 && width <= 32) {}
  std::int64_t count;
  std::int64_t tokens;  // T
  std::int64_t width;   // D
  DType dtype;
  AttentionMask mask;
  bool fused_on_cuda;

  /// Returns the number of scores that the mask leaves.
  std::int64_t scores() const {
    return mask == AttentionMask::causal ? count * tokens * (tokens + 1) / 2 : all_scores();
  }
  std::int64_t all_scores() const { return count * tokens * tokens; }
  std::int64_t rows() const { return count * tokens; }

  /// Returns the elements that the CPU needs for one head: matrices [T, D] or [block, D] with a token per row, [D, T]
  /// with one per column, and [block, T] of scores, whose rows are whole vectors.
  std::int64_t workspace(std::int64_t features, std::int64_t block_features, std::int64_t turned,
                         std::int64_t block_scores) const {
    const CpuVectors vectors(dtype);
    const std::int64_t block = std::min<std::int64_t>(tokens, 64);
    return (features * tokens + block_features * block) * vectors.padded(width) +
           (turned * width + block_scores * block) * vectors.padded(tokens);
  }
};

// Per score: two products of D terms, the scale, and the softmax's 5, but one less per row.
KernelCost attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& y) {
  const Heads h(y, heads, mask);
  return {.kind = CostKind::attention,
          .dtype = h.dtype,
          .flops = h.scores() * (4 * h.width + 6) - h.rows(),
          .bytes_read = bytes_of(qkv),
          .bytes_written = bytes_of(y),
          .cpu = {.workspace_bytes = element_bytes(h.workspace(1, 1, 1, 1), h.dtype)},
          .cuda = {.launches = h.fused_on_cuda ? 1 : 3,
                   .workspace_bytes = h.fused_on_cuda ? 0 : element_bytes(h.all_scores(), h.dtype)}};
}

// Per score: the first product again and four more, the scale and the softmax again, and 5 for the softmax's gradient.
KernelCost attention_grad(const Tensor& grad_y, const Tensor& qkv, std::int64_t heads, AttentionMask mask,
                          Tensor& grad_qkv) {
  const Heads h(grad_y, heads, mask);
  const std::int64_t cuda_elements = h.fused_on_cuda ? 3 * h.rows() : 2 * h.all_scores();
  return {.kind = CostKind::attention,
          .dtype = h.dtype,
          .flops = h.scores() * (10 * h.width + 11) - h.rows(),
          .bytes_read = bytes_of(grad_y, qkv),
          .bytes_written = bytes_of(grad_qkv),
          .cpu = {.workspace_bytes = element_bytes(h.workspace(3, 3, 2, 2), h.dtype)},
          .cuda = {.launches = h.fused_on_cuda ? 2 : 7, .workspace_bytes = element_bytes(cuda_elements, h.dtype)}};
}

}  // namespace

void add_attention(KernelCosts& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace stagecoach::costs
