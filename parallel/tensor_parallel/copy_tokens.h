#pragma once
/// @file
/// Copies of some tokens, or some features, of tokens [N, T, C]. No gradient flows through them.

#include <cstdint>

#include "core/ops/record.h"

namespace stagecoach {

/// Copies `count` tokens of `from` [N, T, C], from token `first` on, to token `to` and those after it of `into`.
inline void copy_tokens(const Tensor& from, std::int64_t first, std::int64_t to, std::int64_t count, Tensor& into) {
  const auto as_samples = [](const Tensor& x) { return x.alias({x.size(0), x.size(1) * x.size(2)}, x.offset()); };
  const std::int64_t features = from.size(2);
  Tensor samples = as_samples(into);
  kernels(from.device()).copy_columns(as_samples(from), first * features, to * features, count * features, samples);
}

/// The same for `count` features.
inline void copy_features(const Tensor& from, std::int64_t first, std::int64_t to, std::int64_t count, Tensor& into) {
  Tensor rows = as_rows(into);
  kernels(from.device()).copy_columns(as_rows(from), first, to, count, rows);
}

}  // namespace stagecoach
