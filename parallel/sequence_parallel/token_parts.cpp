#include "parallel/sequence_parallel/token_parts.h"

#include "parallel/tensor_parallel/copy_tokens.h"

namespace stagecoach {
Tensor cut_tokens(const Tensor& x, const TokenParts& parts, int rank) {
  STAGECOACH_CHECK(x.dims() == 3 && x.size(1) % parts.count() == 0,
                   "sequences cut over {} ranks: expected [N, T, C] with a number of tokens T that {} parts can share, "
                   "got {}",
                   parts.ranks, parts.count(), describe(x));
  const std::int64_t length = x.size(1) / parts.count();
  Tensor tokens = empty_like(x, x.shape().with(1, length * parts.per_rank()));
  for (int i = 0; i < parts.per_rank(); ++i) {
    copy_tokens(x, parts.part(rank, i) * length, i * length, length, tokens);
  }
  return tokens;
}

void paste_tokens(const Tensor& tokens, const TokenParts& parts, int rank, Tensor& whole) {
  const std::int64_t length = tokens.size(1) / parts.per_rank();
  for (int i = 0; i < parts.per_rank(); ++i) {
    copy_tokens(tokens, i * length, parts.part(rank, i) * length, length, whole);
  }
}

}  // namespace stagecoach
