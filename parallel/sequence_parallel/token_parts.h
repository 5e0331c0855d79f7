#pragma once
/// @file
/// Which tokens of a sequence a rank has, where sequences are cut over ranks for all layers.
///
/// With a causal mask a later token sees more keys, so equal parts one after another would be unequal work. The
/// sequence is then cut into two parts per rank, and of 2 c parts rank r has the parts r and 2 c - 1 - r, which are as
/// much work on every rank. Source: Grattafiori et al., "The Llama 3 herd of models", 2024, section 3.3.2.

#include <cstdint>

#include "core/kernels/settings.h"
#include "core/tensor.h"

namespace stagecoach {

struct TokenParts {
  int ranks = 1;
  AttentionMask mask = AttentionMask::none;

  int per_rank() const { return mask == AttentionMask::causal ? 2 : 1; }
  /// Returns the number of parts, all of one length.
  int count() const { return ranks * per_rank(); }
  /// Returns the part that is number `index` of a rank's, in their order.
  int part(int rank, int index) const { return index == 0 ? rank : count() - 1 - rank; }
  /// Returns whether queries of one part see any key of another.
  bool sees(int queries, int keys) const { return mask == AttentionMask::none || keys <= queries; }
  /// Returns the mask between a part's queries and keys of a part that they see.
  AttentionMask between(int queries, int keys) const { return queries == keys ? mask : AttentionMask::none; }
};

/// Returns rank `rank`'s tokens, [N, T / ranks, C], of x [N, T, C]; no gradient flows through it. Throws Error if the
/// tokens cannot be cut into equal parts.
Tensor cut_tokens(const Tensor& x, const TokenParts& parts, int rank);
/// Writes rank `rank`'s tokens, [N, T / ranks, C], to their places in `whole` [N, T, C].
void paste_tokens(const Tensor& tokens, const TokenParts& parts, int rank, Tensor& whole);

}  // namespace stagecoach
