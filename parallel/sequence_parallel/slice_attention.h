#pragma once
/// @file
/// Attention of the tokens of one rank to keys and values that come one rank at a time.
///
/// The results for several sets of keys are merged by the logarithms of their sums of exp(score): with log_sum =
/// log(exp(log_sum_1) + exp(log_sum_2)), y = exp(log_sum_1 - log_sum) y_1 + exp(log_sum_2 - log_sum) y_2. The backward
/// needs no merging: with y and log_sum over all keys, the probabilities of some of them are exp(score - log_sum).
/// Source: Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite context", 2023.

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "parallel/sequence_parallel/token_parts.h"

namespace stagecoach {

class SliceAttention {
 public:
  /// For rank `rank`, whose tokens have the queries, keys and values qkv [N, T / ranks, 3 W] side by side.
  SliceAttention(const TokenParts& parts, int rank, std::int64_t heads, const Tensor& qkv);

  /// Returns the keys and values of the rank's own tokens: [parts per rank, N, tokens per part, 2 W].
  const Tensor& keys() const { return keys_; }

  /// Attends to those of the keys and values of rank `other` that the rank's tokens see.
  void attend(const Tensor& keys, int other);
  /// Returns the result for all keys so far, [N, T / ranks, W], and the logarithms of their sums, [parts per rank, N,
  /// heads, tokens per part].
  Tensor result() const;
  const Tensor& log_sums() const { return log_sums_; }

  /// Begins the backward, for `result` and `log_sums` over the keys of all ranks.
  void begin_grad(const Tensor& grad, const Tensor& result, const Tensor& log_sums);
  /// Adds what these keys contribute to the gradient of the queries. Returns what the queries contribute to theirs.
  Tensor attend_grad(const Tensor& keys, int other);
  /// Returns the gradient of qkv, given that of keys().
  Tensor grad_qkv(const Tensor& grad_keys) const;

 private:
  Tensor part_of(const Tensor& stacked, int index) const;
  /// Returns [N, T / ranks, C] as [parts per rank, N, tokens per part, C].
  Tensor stacked(const Tensor& tokens) const;
  Tensor unstacked(const Tensor& parts) const;
  /// Calls body(index, mask, keys index) for each pair of a part of queries and one of rank `other`'s keys that it
  /// sees.
  template <class Body>
  void for_each_pair(int other, const Body& body) const;

  TokenParts parts_;
  int rank_;
  std::int64_t heads_;
  Tensor queries_;                  // [parts per rank, N, tokens per part, W]
  Tensor keys_;                     // [parts per rank, N, tokens per part, 2 W]
  Tensor result_;                   // as queries_
  Tensor log_sums_;                 // [parts per rank, N, heads, tokens per part]
  std::vector<bool> has_attended_;  // each part
  Tensor grad_;                     // of result_
  Tensor grad_queries_;             // the sum so far
};

}  // namespace stagecoach
