#pragma once
/// @file
/// Gradient compression: how a bucket of gradients is sent to the other ranks. Each function here returns a
/// ReduceBucket (buckets.h); `make_compression` chooses one by kind.

#include "parallel/data_parallel/buckets.h"

namespace stagecoach {

/// Sends gradients as they are; the sum is exact.
ReduceBucket plain_sum();

/// Sends float32 as float16, which halves the bytes, and adds in float32. Each value is rounded to 11 significant bits
/// when it is sent, and the sum once more when it is returned. Values beyond 65504 become infinite and values below
/// 2^-25 are lost, as in PyTorch's fp16_compress_hook: the gradients of a mean over a large batch may need loss
/// scaling.
ReduceBucket half_precision();

/// plain_sum and half_precision.
enum class CompressionKind { none, half };

ReduceBucket make_compression(CompressionKind kind);

}  // namespace stagecoach
