#pragma once
/// @file
/// Checks of the batches that the wrappers are given.

#include "core/tensor.h"

namespace stagecoach {

/// Throws UsageError, which begins with `wrapper`, unless `labels` is int32 [N] for N >= 1 `images`, which are float32
/// [N, …].
void require_batch(const char* wrapper, const Tensor& images, const Tensor& labels);
/// Throws UsageError likewise for images alone.
void require_images(const char* wrapper, const Tensor& images);

}  // namespace stagecoach
