#include "parallel/sequence_parallel/slice_attention.h"

#include "parallel/tensor_parallel/copy_tokens.h"

namespace stagecoach {

SliceAttention::SliceAttention(const TokenParts& parts, int rank, std::int64_t heads, const Tensor& qkv)
    : parts_(parts), rank_(rank), heads_(heads), has_attended_(static_cast<std::size_t>(parts.per_rank())) {
  STAGECOACH_CHECK(
      qkv.dims() == 3 && qkv.size(2) % (3 * heads) == 0 && qkv.size(1) % parts.per_rank() == 0,
      "attention over ranks: expected queries, keys and values [N, T, 3 W] with W features for {} heads and "
      "tokens T in {} parts, got {}",
      heads, parts.per_rank(), describe(qkv));
  const std::int64_t width = qkv.size(2) / 3;
  const auto features_of = [&](std::int64_t first, std::int64_t count) {
    Tensor features = empty_like(qkv, qkv.shape().with(2, count));
    copy_features(qkv, first, 0, count, features);
    return stacked(features);
  };
  queries_ = features_of(0, width);
  keys_ = features_of(width, 2 * width);
}

Tensor SliceAttention::part_of(const Tensor& all, int index) const {
  const Shape part(all.shape().begin() + 1, all.dims() - 1);
  return all.alias(part, all.offset() + index * part.numel());
}

Tensor SliceAttention::stacked(const Tensor& tokens) const {
  const int count = parts_.per_rank();
  const Shape part = tokens.shape().with(1, tokens.size(1) / count);
  const Shape all{count, part[0], part[1], part[2]};
  if (count == 1) {
    return tokens.alias(all, tokens.offset());
  }
  const Tensor stack = empty_like(tokens, all);
  for (int i = 0; i < count; ++i) {
    Tensor to = part_of(stack, i);
    copy_tokens(tokens, i * part[1], 0, part[1], to);
  }
  return stack;
}

Tensor SliceAttention::unstacked(const Tensor& parts) const {
  const Shape& shape = parts.shape();
  const Shape whole{shape[1], shape[0] * shape[2], shape[3]};
  if (shape[0] == 1) {
    return parts.alias(whole, parts.offset());
  }
  Tensor tokens = empty_like(parts, whole);
  for (int i = 0; i < parts_.per_rank(); ++i) {
    copy_tokens(part_of(parts, i), 0, i * shape[2], shape[2], tokens);
  }
  return tokens;
}

template <class Body>
void SliceAttention::for_each_pair(int other, const Body& body) const {
  for (int i = 0; i < parts_.per_rank(); ++i) {
    for (int j = 0; j < parts_.per_rank(); ++j) {
      const int queries = parts_.part(rank_, i);
      const int keys = parts_.part(other, j);
      if (parts_.sees(queries, keys)) {
        body(i, parts_.between(queries, keys), j);
      }
    }
  }
}

void SliceAttention::attend(const Tensor& keys, int other) {
  const Kernels& on = kernels(keys.device());
  if (!result_.defined()) {
    const Shape& shape = queries_.shape();
    result_ = empty_like(queries_, shape);
    log_sums_ = empty_like(queries_, {shape[0], shape[1], heads_, shape[2]});
  }
  for_each_pair(other, [&](int i, AttentionMask mask, int j) {
    const Tensor queries = part_of(queries_, i);
    Tensor result = part_of(result_, i);
    Tensor log_sums = part_of(log_sums_, i);
    if (!has_attended_[static_cast<std::size_t>(i)]) {
      has_attended_[static_cast<std::size_t>(i)] = true;
      return on.attention_part(queries, part_of(keys, j), heads_, mask, result, log_sums);
    }
    Tensor more = empty_like(result, result.shape());
    Tensor more_log_sums = empty_like(log_sums, log_sums.shape());
    on.attention_part(queries, part_of(keys, j), heads_, mask, more, more_log_sums);
    on.merge_attention(more, more_log_sums, result, log_sums);
  });
}

Tensor SliceAttention::result() const { return unstacked(result_); }

void SliceAttention::begin_grad(const Tensor& grad, const Tensor& result, const Tensor& log_sums) {
  grad_ = stacked(grad);
  result_ = stacked(result);
  log_sums_ = log_sums;
  grad_queries_ = Tensor::zeros(queries_.shape(), queries_.dtype(), queries_.device());
}

Tensor SliceAttention::attend_grad(const Tensor& keys, int other) {
  const Kernels& on = kernels(keys.device());
  Tensor grad_keys = Tensor::zeros(keys.shape(), keys.dtype(), keys.device());
  for_each_pair(other, [&](int i, AttentionMask mask, int j) {
    const Tensor queries = part_of(queries_, i);
    const Tensor part = part_of(keys, j);
    Tensor more_of_queries = empty_like(queries, queries.shape());
    Tensor more_of_keys = empty_like(part, part.shape());
    on.attention_part_grad(part_of(grad_, i), part_of(result_, i), queries, part, part_of(log_sums_, i), heads_, mask,
                           more_of_queries, more_of_keys);
    Tensor of_queries = part_of(grad_queries_, i);
    Tensor of_keys = part_of(grad_keys, j);
    on.add_scaled(more_of_queries, 1, of_queries);
    on.add_scaled(more_of_keys, 1, of_keys);
  });
  return grad_keys;
}

Tensor SliceAttention::grad_qkv(const Tensor& grad_keys) const {
  const Tensor of_queries = unstacked(grad_queries_);
  const Tensor of_keys = unstacked(grad_keys);
  Tensor grad = empty_like(of_queries, of_queries.shape().with(2, 3 * of_queries.size(2)));
  copy_features(of_queries, 0, 0, of_queries.size(2), grad);
  copy_features(of_keys, 0, of_queries.size(2), of_keys.size(2), grad);
  return grad;
}

}  // namespace stagecoach
