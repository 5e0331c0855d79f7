#include "parallel/sequence_parallel/heads_exchange.h"

#include "parallel/tensor_parallel/copy_tokens.h"

namespace stagecoach {
namespace {

constexpr int kResult = 1;             // sections of features: the result of attention
constexpr int kQueriesKeysValues = 3;  // side by side, each cut over ranks

/// Exchanges equal numbers of rows, [ranks, …] as [ranks n, …]: row block r goes to rank r.
Tensor swapped_blocks(const Tensor& rows, const TensorGroup& group) {
  const RowCounts counts(static_cast<std::size_t>(group.ranks), rows.size(0) / group.ranks);
  return group.comm == nullptr ? rows.detach() : group.comm->all_to_all(rows, counts, counts);
}

Tensor block_of(const Tensor& rows, int rank, const Shape& shape) {
  return rows.alias(shape, rows.offset() + rank * shape.numel());
}

/// [N, T / ranks, F] with features in `sections` to [N, T, F / ranks]. Rank r gets part r of each section.
Tensor to_heads(const Tensor& x, int sections, const TokenParts& parts, const TensorGroup& group) {
  const std::int64_t features = x.size(2) / group.ranks;  // of one rank
  const std::int64_t width = features / sections;
  const Shape block = x.shape().with(2, features);
  Tensor rows = empty_like(x, block.with(0, group.ranks * block[0]));
  for (int rank = 0; rank < group.ranks; ++rank) {
    Tensor to = block_of(rows, rank, block);
    for (int section = 0; section < sections; ++section) {
      copy_features(x, (section * group.ranks + rank) * width, section * width, width, to);
    }
  }
  const Tensor received = swapped_blocks(rows, group);
  Tensor whole = empty_like(x, block.with(1, group.ranks * block[1]));
  for (int rank = 0; rank < group.ranks; ++rank) {
    paste_tokens(block_of(received, rank, block), parts, rank, whole);
  }
  return whole;
}

/// The reverse.
Tensor to_tokens(const Tensor& x, int sections, const TokenParts& parts, const TensorGroup& group) {
  const std::int64_t width = x.size(2) / sections;
  const Shape block = x.shape().with(1, x.size(1) / group.ranks);
  const Tensor rows = empty_like(x, block.with(0, group.ranks * block[0]));
  for (int rank = 0; rank < group.ranks; ++rank) {
    block_of(rows, rank, block).copy_from(cut_tokens(x, parts, rank));
  }
  const Tensor received = swapped_blocks(rows, group);
  Tensor mine = empty_like(x, block.with(2, group.ranks * block[2]));
  for (int rank = 0; rank < group.ranks; ++rank) {
    const Tensor from = block_of(received, rank, block);
    for (int section = 0; section < sections; ++section) {
      copy_features(from, section * width, (section * group.ranks + rank) * width, width, mine);
    }
  }
  return mine;
}

using HeadsFunction = Tensor (*)(const Tensor& x, int sections, const TokenParts& parts, const TensorGroup& group);

/// A node whose backward is a function of the gradient.
class HeadsExchangeNode final : public Node {
 public:
  HeadsExchangeNode(const char* name, const Tensor& x, int sections, const TokenParts& parts, const TensorGroup& group,
                    HeadsFunction reverse)
      : Node(name, {x}), sections_(sections), parts_(parts), group_(group), reverse_(reverse) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    return {reverse_(grad, sections_, parts_, group_)};
  }

 private:
  int sections_;
  TokenParts parts_;
  TensorGroup group_;
  HeadsFunction reverse_;
};

}  // namespace

Tensor tokens_to_heads(const Tensor& qkv, std::int64_t heads, const TokenParts& parts, const TensorGroup& group) {
  STAGECOACH_CHECK(
      heads % group.ranks == 0,
      "attention over ranks by all-to-all: expected a number of heads that {} ranks can share, got {}; use "
      "all-gather or ring",
      group.ranks, heads);
  return recorded<HeadsExchangeNode>(to_heads(qkv, kQueriesKeysValues, parts, group), {&qkv}, "tokens_to_heads", qkv,
                                     kQueriesKeysValues, parts, group, to_tokens);
}

Tensor heads_to_tokens(const Tensor& y, const TokenParts& parts, const TensorGroup& group) {
  return recorded<HeadsExchangeNode>(to_tokens(y, kResult, parts, group), {&y}, "heads_to_tokens", y, kResult, parts,
                                     group, to_heads);
}

}  // namespace stagecoach
