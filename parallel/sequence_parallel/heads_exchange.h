#pragma once
/// @file
/// The all-to-all between tokens that are cut over ranks and heads that are: from this rank's tokens, with all heads,
/// to this rank's heads, of all tokens, and back. Each is the other's gradient. Source: Jacobs et al., "DeepSpeed
/// Ulysses", 2023.

#include <cstdint>

#include "core/tensor.h"
#include "parallel/sequence_parallel/token_parts.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// Returns queries, keys and values of this rank's heads, [N, T, 3 W / ranks], for those of this rank's tokens, qkv [N,
/// T / ranks, 3 W]. Throws Error for heads that the ranks cannot share.
Tensor tokens_to_heads(const Tensor& qkv, std::int64_t heads, const TokenParts& parts, const TensorGroup& group);
/// Returns all features of this rank's tokens, [N, T / ranks, W], for those of this rank's heads, y [N, T, W / ranks].
Tensor heads_to_tokens(const Tensor& y, const TokenParts& parts, const TensorGroup& group);

}  // namespace stagecoach
