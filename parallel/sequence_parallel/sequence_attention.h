#pragma once
/// @file
/// Attention of tokens that are cut over ranks. Each rank has T / ranks tokens of every sample (token_parts.h), for all
/// layers; only here it needs those of others. Three ways to exchange them, for W features, in bytes that a rank sends
/// with float32:
///
/// | exchange   | forward                             | backward                                               |
/// |------------|-------------------------------------|--------------------------------------------------------|
/// | all_gather | keys and values of all ranks:       | their gradients, reduce-scattered: as many             |
/// |            | 2 T/c (c - 1) W 4                   |                                                        |
/// | ring       | keys and values go round:           | they go round once more, and their gradients with      |
/// |            | 2 T/c (c - 1) W 4                   | them, one hop further, home: 2 T/c (2 c - 1) W 4       |
/// | all_to_all | a share of the heads of all tokens, | the same: 4 T/c W 4 (c - 1)/c                          |
/// |            | and back: 4 T/c W 4 (c - 1)/c       |                                                        |
///
/// The first keeps the keys and values of all tokens for the backward; the second computes on those of one rank while
/// the next ones arrive; the third needs a number of heads that the ranks can share. Sources: Grattafiori et al., "The
/// Llama 3 herd of models", 2024, section 3.3.2; Liu, Zaharia and Abbeel, "Ring attention", 2023; Jacobs et al.,
/// "DeepSpeed Ulysses", 2023.

#include <cstdint>

#include "core/tensor.h"
#include "parallel/sequence_parallel/token_parts.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

enum class SequenceExchange { all_gather, ring, all_to_all };

/// Returns softmax(q k^T / sqrt(D)) v [N, T / ranks, W] of this rank's tokens, over the keys of all ranks that the mask
/// leaves: qkv [N, T / ranks, 3 W]. All ranks of the group call it together, in the forward and in the backward; the
/// graph refers to the group's communicator, which must outlive it. A group without a communicator exchanges nothing:
/// results then have the right shapes and take as long to compute, but mean nothing. Throws Error for heads or tokens
/// that the ranks cannot share.
Tensor sequence_attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, SequenceExchange exchange,
                          const TensorGroup& group);

/// The oracle: one device that has the tokens of all ranks, qkv [N, T, 3 W] in the order of the sequence, and computes
/// what `ranks` ranks compute, with sums in their order. Its results equal theirs bit for bit.
Tensor sliced_attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, SequenceExchange exchange,
                        int ranks);

}  // namespace stagecoach
