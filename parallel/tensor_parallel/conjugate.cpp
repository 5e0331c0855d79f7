#include "parallel/tensor_parallel/conjugate.h"

#include <numeric>
#include <vector>

#include "core/ops.h"
#include "core/ops/record.h"
#include "parallel/tensor_parallel/copy_tokens.h"

namespace stagecoach {
namespace {

using Function = Tensor (*)(const Tensor& x, const TensorGroup& group);

/// A node whose backward is a function of the gradient.
class ConjugateNode final : public Node {
 public:
  ConjugateNode(const char* name, const Tensor& x, const TensorGroup& group, Function conjugate)
      : Node(name, {x}), group_(group), conjugate_(conjugate) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override { return {conjugate_(grad, group_)}; }

 private:
  TensorGroup group_;
  Function conjugate_;
};

// The functions without history.

Tensor same(const Tensor& x, const TensorGroup&) { return x.alias(x.shape(), x.offset()); }

void all_reduce(Tensor& x, const TensorGroup& group) {
  if (group.comm != nullptr) {
    group.comm->all_reduce(x);
  }
}

Tensor all_reduced(const Tensor& x, const TensorGroup& group) {
  Tensor sum = x.clone();
  all_reduce(sum, group);
  return sum;
}

Tensor tokens_of_rank(const Tensor& x, const TensorGroup& group) {
  Tensor mine = empty_like(x, own_tokens_shape(x.shape(), group.ranks));
  copy_tokens(x, group.rank * mine.size(1), 0, mine.size(1), mine);
  return mine;
}

Tensor gathered(const Tensor& x, const TensorGroup& group) {
  const Shape whole = x.shape().with(1, x.size(1) * group.ranks);
  Tensor all = empty_like(x, whole);
  std::int64_t start = 0;
  const std::vector<Tensor> parts =
      group.comm == nullptr ? std::vector<Tensor>(static_cast<std::size_t>(group.ranks), x) : group.comm->all_gather(x);
  for (const Tensor& part : parts) {
    copy_tokens(part, 0, start, x.size(1), all);
    start += x.size(1);
  }
  return all;
}

/// Returns this rank's tokens of the sum. reduce_scatter cuts the first dimension, so the tokens of each rank are put
/// one after another: [ranks N, T / ranks, C].
Tensor summed_and_scattered(const Tensor& x, const TensorGroup& group) {
  const Shape own_shape = own_tokens_shape(x.shape(), group.ranks);
  const std::int64_t samples = x.size(0);
  Tensor by_rank = empty_like(x, own_shape.with(0, samples * group.ranks));
  for (int rank = 0; rank < group.ranks; ++rank) {
    Tensor part = by_rank.alias(own_shape, rank * own_shape.numel());
    copy_tokens(x, rank * own_shape[1], 0, own_shape[1], part);
  }
  return group.comm == nullptr ? by_rank.narrow(0, samples).detach() : group.comm->reduce_scatter(by_rank);
}

/// A group without a communicator receives zeros.
Tensor exchanged(const Tensor& x, const RowCounts& send_rows, const RowCounts& receive_rows, const TensorGroup& group) {
  const std::int64_t received = std::accumulate(receive_rows.begin(), receive_rows.end(), std::int64_t{0});
  return group.comm == nullptr ? Tensor::zeros(x.shape().with(0, received), x.dtype(), x.device())
                               : group.comm->all_to_all(x, send_rows, receive_rows);
}

class ExchangeNode final : public Node {
 public:
  ExchangeNode(const Tensor& x, const RowCounts& send_rows, const RowCounts& receive_rows, const TensorGroup& group)
      : Node("exchange_rows", {x}), send_rows_(send_rows), receive_rows_(receive_rows), group_(group) {}
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    return {exchanged(grad, receive_rows_, send_rows_, group_)};
  }

 private:
  RowCounts send_rows_;
  RowCounts receive_rows_;
  TensorGroup group_;
};

}  // namespace

Tensor copy_to_ranks(const Tensor& x, const TensorGroup& group) {
  return recorded<ConjugateNode>(same(x, group), {&x}, "copy_to_ranks", x, group, all_reduced);
}

Tensor sum_over_ranks(Tensor x, const TensorGroup& group) {
  if (!x.is_donatable() || (x.is_leaf() && x.requires_grad())) {
    return recorded<ConjugateNode>(all_reduced(x, group), {&x}, "sum_over_ranks", x, group, same);
  }
  Tensor sum = same(x, group);
  all_reduce(sum, group);
  return recorded<ConjugateNode>(sum, {&x}, "sum_over_ranks", x, group, same);
}

Tensor gather_tokens(const Tensor& x, const TensorGroup& group) {
  return recorded<ConjugateNode>(gathered(x, group), {&x}, "gather_tokens", x, group, summed_and_scattered);
}

Tensor sum_and_scatter_tokens(const Tensor& x, const TensorGroup& group) {
  return recorded<ConjugateNode>(summed_and_scattered(x, group), {&x}, "sum_and_scatter_tokens", x, group, gathered);
}

Tensor own_tokens(const Tensor& x, const TensorGroup& group) {
  return recorded<ConjugateNode>(tokens_of_rank(x, group), {&x}, "own_tokens", x, group, gathered);
}

Tensor all_tokens(const Tensor& x, const TensorGroup& group) {
  return recorded<ConjugateNode>(gathered(x, group), {&x}, "all_tokens", x, group, tokens_of_rank);
}

Tensor exchange_rows(const Tensor& x, const RowCounts& send_rows, const RowCounts& receive_rows,
                     const TensorGroup& group) {
  return recorded<ExchangeNode>(exchanged(x, send_rows, receive_rows, group), {&x}, x, send_rows, receive_rows, group);
}

Shape own_tokens_shape(const Shape& x, int ranks) {
  STAGECOACH_CHECK(x.dims() == 3 && x[1] % ranks == 0,
                   "sequence parallelism: expected [N, T, C] with a number of tokens T that {} ranks can share, got {}",
                   ranks, to_string(x));
  return x.with(1, x[1] / ranks);
}

}  // namespace stagecoach
