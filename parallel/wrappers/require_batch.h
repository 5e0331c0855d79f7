#pragma once
/// @file
/// Checks of the batches that the wrappers are given.

#include <optional>
#include <string>

#include "core/tensor.h"
#include "nn/loss_function.h"

namespace stagecoach {

/// Throws UsageError, which begins with `wrapper`, unless `x` is a batch [N, …] of N >= 1 samples: of the type of the
/// weights, `type`, or, for models that begin with such a layer, int32 or uint8.
void require_input(const char* wrapper, const Tensor& x, DType type);
/// Throws UsageError likewise unless weights may be of type `type`: float32 or float64.
void require_type_of_weights(const char* wrapper, DType type);
/// Throws UsageError likewise unless `x` is [N, …] of type `type`, and `sample` is its shape for one sample, [1, …]:
/// those that the layers were placed for.
void require_like(const char* wrapper, const Tensor& x, const Shape& sample, DType type);
/// Throws UsageError likewise unless the value `name`, one more input of the same batch, is [N, …].
void require_value(const char* wrapper, const std::string& name, const Tensor& value, const Tensor& x);
/// Throws UsageError likewise unless `target` has N targets as well; those of the cross-entropy, which is trained
/// without a `loss`, are labels int32 [N].
void require_batch(const char* wrapper, const Tensor& x, const Tensor& target, const std::optional<LossFunction>& loss,
                   DType type);

}  // namespace stagecoach
