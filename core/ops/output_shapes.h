#pragma once
/// @file
/// Computes the shape of an operation's result from the shapes of its inputs alone. The operations use these functions
/// for allocation, and a plan uses them before any layer has memory. Each throws Error for shapes that the operation
/// rejects.

#include "core/ops.h"

namespace stagecoach {

/// Returns […, O] for x […, I] and weight [O, I].
Shape linear_shape(const Shape& x, const Shape& weight);
/// Returns […, M, N] for a […, M, K] and b […, K, N].
Shape matmul_shape(const Shape& a, const Shape& b);
/// Returns [N, O, P, Q] for x [N, C, H, W] and weight [O, C, K, K].
Shape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dSettings& settings);
/// Returns [N, C, P, Q] for x [N, C, H, W].
Shape max_pool2d_shape(const Shape& x, const Window& window);
/// Returns [N, C] for x [N, C, H, W].
Shape global_average_pool_shape(const Shape& x);
/// Returns [N, the product of the rest] for x [N, …].
Shape flatten_shape(const Shape& x);
/// Returns the result shape of an operation over the last dimension of x […, C]; errors name `operation`.
Shape rows_shape(const char* operation, const Shape& x);
/// Returns the shape of x [N, C] or [N, C, H, W], for `channels` channels. Only batch_norm itself checks that a batch
/// has enough values to be normalised: they may be distributed over ranks.
Shape batch_norm_shape(const Shape& x, std::int64_t channels);
/// Returns the shape of x […, C], for weight [C].
Shape layer_norm_shape(const Shape& x, const Shape& weight);
/// Returns [N, T, W] for qkv [N, T, 3 W].
Shape attention_shape(const Shape& qkv, std::int64_t heads);
/// Returns […, C] for tokens […] and weight [V, C].
Shape embedding_shape(const Shape& tokens, const Shape& weight);
/// Returns […, C, R] for x […, R, C].
Shape transpose_shape(const Shape& x);
/// Returns [N, C] for x [N, T, C].
Shape token_mean_shape(const Shape& x);
/// Returns the shape of a sum of two equal shapes.
Shape add_shape(const Shape& a, const Shape& b);
/// Returns the shape of x [N, …] plus b […].
Shape add_broadcast_shape(const Shape& x, const Shape& b);

}  // namespace stagecoach
