#pragma once
/// @file
/// The shape of an operation's result, from those of its inputs alone. The operations allocate by these functions, and
/// a plan asks them what a layer gives before any layer has memory. Each throws Error for shapes that the operation
/// refuses.

#include "core/ops.h"

namespace stagecoach {

/// x [N, I] and weight [O, I] to [N, O].
Shape linear_shape(const Shape& x, const Shape& weight);
/// x [N, C, H, W] and weight [O, C, K, K] to [N, O, P, Q].
Shape conv2d_shape(const Shape& x, const Shape& weight, const Conv2dSettings& settings);
/// [N, C, H, W] to [N, C, P, Q].
Shape max_pool2d_shape(const Shape& x, const Window& window);
/// [N, C, H, W] to [N, C].
Shape global_average_pool_shape(const Shape& x);
/// [N, …] to [N, the product of the rest].
Shape flatten_shape(const Shape& x);
/// Of an operation over the rows of [N, C], whose name the error gives.
Shape rows_shape(const char* operation, const Shape& x);
/// Of x [N, C] or [N, C, H, W], for `channels` channels. Whether a batch has enough values to be normalised by, only
/// batch_norm itself says: they may be spread over ranks.
Shape batch_norm_shape(const Shape& x, std::int64_t channels);
/// Of two equal shapes.
Shape add_shape(const Shape& a, const Shape& b);

}  // namespace stagecoach
