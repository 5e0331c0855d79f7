#pragma once
/// @file
/// The operations by which the ranks of a cut layer exchange what they have computed. They come in conjugate pairs: the
/// backward of one is the forward of the other.
///
/// | operation              | forward                | backward               | name in Megatron-LM                   |
/// |------------------------|------------------------|------------------------|---------------------------------------|
/// | copy_to_ranks          | identity               | all-reduce             | f, copy_to_tensor_model_parallel      |
/// | sum_over_ranks         | all-reduce             | identity               | g, reduce_from_tensor_model_parallel  |
/// | gather_tokens          | all-gather             | reduce-scatter         | gather_from_sequence_parallel         |
/// | sum_and_scatter_tokens | reduce-scatter         | all-gather             | reduce_scatter_to_sequence_parallel   |
/// | own_tokens             | this rank's tokens     | all-gather             | scatter_to_sequence_parallel          |
/// | all_tokens             | all-gather             | this rank's tokens     | gather, with its gradient not reduced |
/// | exchange_rows          | all-to-all             | all-to-all             | all_to_all                            |
///
/// All ranks of the group call them together, in the forward and in the backward. Sums are in rank order. The graph
/// refers to the group's communicator, which must outlive it. A group without a communicator exchanges nothing: results
/// then have the right shapes and take as long to compute, but mean nothing. Sources: Shoeybi et al., "Megatron-LM:
/// training multi-billion parameter language models using model parallelism", 2019, section 3 (the first pair);
/// Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 4.2.2 (the second
/// pair).

#include "core/tensor.h"
#include "parallel/tensor_parallel/tensor_group.h"

namespace stagecoach {

/// Returns x, which all ranks have: each rank will use it to compute something of its own. The gradient is the sum of
/// the ranks' gradients.
Tensor copy_to_ranks(const Tensor& x, const TensorGroup& group);
/// Returns the sum of the ranks' x, on all ranks. The sum is written over x if nothing else refers to its elements.
Tensor sum_over_ranks(Tensor x, const TensorGroup& group);

/// Returns the tokens of all ranks, [N, T, C], for this rank's tokens x [N, T / ranks, C].
Tensor gather_tokens(const Tensor& x, const TensorGroup& group);
/// Returns this rank's tokens, [N, T / ranks, C], of the sum of the ranks' x [N, T, C].
Tensor sum_and_scatter_tokens(const Tensor& x, const TensorGroup& group);

/// Returns this rank's tokens, [N, T / ranks, C], of x [N, T, C], which all ranks have.
Tensor own_tokens(const Tensor& x, const TensorGroup& group);
/// Returns the tokens of all ranks, [N, T, C], from which all ranks go on to compute the same.
Tensor all_tokens(const Tensor& x, const TensorGroup& group);

/// Returns the rows that the ranks send to this one for its own rows x [N, …] (Communicator::all_to_all). The gradients
/// of the rows go back to where they came from.
Tensor exchange_rows(const Tensor& x, const RowCounts& send_rows, const RowCounts& receive_rows,
                     const TensorGroup& group);

/// Returns x [N, T, C] with T / ranks in place of T. Throws Error if the ranks cannot share the tokens equally.
Shape own_tokens_shape(const Shape& x, int ranks);

}  // namespace stagecoach
