#include "parallel/sequence_parallel/sequence_attention.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "core/ops/record.h"
#include "parallel/sequence_parallel/heads_exchange.h"
#include "parallel/sequence_parallel/slice_attention.h"

namespace stagecoach {
namespace {

enum RingTag { kKeys, kGradients };

/// A tensor on its way to the next rank, while another comes from the rank before.
class Hop {
 public:
  Hop(Tensor tensor, RingTag tag, const TensorGroup& group) : tensor_(std::move(tensor)) {
    if (group.comm != nullptr && group.ranks > 1) {
      const int before = (group.rank + group.ranks - 1) % group.ranks;
      incoming_ = group.comm->receive_async(tensor_.shape(), tensor_.dtype(), before, tag);
      outgoing_ = group.comm->send_async(tensor_, (group.rank + 1) % group.ranks, tag);
    }
  }
  /// Returns the other one.
  Tensor wait() const {
    if (!incoming_) {
      return tensor_;
    }
    Tensor arrived = incoming_->wait();
    outgoing_->wait();
    return arrived;
  }

 private:
  Tensor tensor_;
  std::optional<PendingReceive> incoming_;
  std::optional<PendingSend> outgoing_;
};

/// Returns the rank whose keys the ring brings to rank `rank` in a step; in step 0 its own.
int source_of(int rank, int step, int ranks) { return (rank - step + ranks) % ranks; }

/// The keys that the ring brings. While those of one step are in use, the next are on their way.
class RingKeys {
 public:
  RingKeys(Tensor own, const TensorGroup& group) : keys_(std::move(own)), group_(group) {}
  /// Returns those of the next step.
  Tensor operator()(int source) {
    keys_ = source == group_.rank ? keys_ : next_->wait();
    next_.reset();
    if (source != (group_.rank + 1) % group_.ranks) {  // not the last step
      next_.emplace(keys_, kKeys, group_);
    }
    return keys_;
  }

 private:
  Tensor keys_;
  TensorGroup group_;
  std::optional<Hop> next_;
};

/// The gradients of keys follow them around the ring, one step behind, and each rank adds its part.
class RingGrads {
 public:
  explicit RingGrads(const TensorGroup& group) : group_(group) {}
  void add(const Tensor& mine) {
    Tensor sum = mine;
    if (sums_) {
      sum = sums_->wait();
      kernels(mine.device()).add_scaled(mine, 1, sum);
    }
    sums_.emplace(sum, kGradients, group_);
  }
  /// Returns the gradient of this rank's keys, after the last step.
  Tensor wait() const { return sums_->wait(); }

 private:
  TensorGroup group_;
  std::optional<Hop> sums_;
};

/// Attends to the keys_of(source) of all ranks, in the order of the ring.
template <class KeysOf>
void attend_to_all(SliceAttention& slice, int rank, int ranks, KeysOf keys_of) {
  for (int step = 0; step < ranks; ++step) {
    const int source = source_of(rank, step, ranks);
    slice.attend(keys_of(source), source);
  }
}

/// Calls add(source, gradient) with what the slice's queries contribute to the gradient of each rank's keys.
template <class KeysOf, class Add>
void grad_of_all(SliceAttention& slice, int rank, int ranks, KeysOf keys_of, Add add) {
  for (int step = 0; step < ranks; ++step) {
    const int source = source_of(rank, step, ranks);
    add(source, slice.attend_grad(keys_of(source), source));
  }
}

/// Returns the part [P, …] of rank `rank` in the keys of all ranks, [ranks P, …].
Tensor keys_of_rank(const Tensor& all, int rank, int ranks) {
  const Shape own = all.shape().with(0, all.size(0) / ranks);
  return all.alias(own, all.offset() + rank * own.numel());
}

/// Returns the keys of all ranks.
Tensor gathered_keys(const Tensor& keys, const TensorGroup& group) {
  Tensor all = empty_like(keys, keys.shape().with(0, group.ranks * keys.size(0)));
  if (group.comm != nullptr) {
    group.comm->all_gather_into(all, keys);
  }
  return all;
}

/// Saves the keys of all ranks where they were gathered; the ring passes them on again.
class SequenceAttentionNode final : public Node {
 public:
  SequenceAttentionNode(const Tensor& qkv, std::int64_t heads, const TokenParts& parts, const TensorGroup& group,
                        const SliceAttention& slice, const Tensor& y, const Tensor& all_keys)
      : Node("sequence_attention", {qkv}), heads_(heads), parts_(parts), group_(group), gathers_(all_keys.defined()) {
    save("qkv", qkv);
    save("y", y);
    save("log_sums", slice.log_sums());
    if (gathers_) {
      save("all_keys", all_keys);
    }
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    SliceAttention slice(parts_, group_.rank, heads_, saved("qkv"));
    slice.begin_grad(grad, saved("y"), saved("log_sums"));
    return {slice.grad_qkv(gathers_ ? grad_of_gathered(slice, saved("all_keys")) : grad_in_ring(slice))};
  }

 private:
  Tensor grad_in_ring(SliceAttention& slice) const {
    RingGrads grads(group_);
    grad_of_all(slice, group_.rank, group_.ranks, RingKeys(slice.keys(), group_),
                [&](int, const Tensor& grad) { grads.add(grad); });
    return grads.wait();
  }
  /// Sums in rank order.
  Tensor grad_of_gathered(SliceAttention& slice, const Tensor& all_keys) const {
    const Tensor grads = empty_like(all_keys, all_keys.shape());
    grad_of_all(
        slice, group_.rank, group_.ranks, [&](int source) { return keys_of_rank(all_keys, source, group_.ranks); },
        [&](int source, const Tensor& grad) { keys_of_rank(grads, source, group_.ranks).copy_from(grad); });
    return group_.comm == nullptr ? keys_of_rank(grads, group_.rank, group_.ranks) : group_.comm->reduce_scatter(grads);
  }

  std::int64_t heads_;
  TokenParts parts_;
  TensorGroup group_;
  bool gathers_;
};

/// The slices of the oracle: what each rank computes.
std::vector<SliceAttention> slices_of(const Tensor& qkv, std::int64_t heads, const TokenParts& parts) {
  std::vector<SliceAttention> slices;
  for (int rank = 0; rank < parts.ranks; ++rank) {
    slices.emplace_back(parts, rank, heads, cut_tokens(qkv, parts, rank));
  }
  return slices;
}

class SlicedAttentionNode final : public Node {
 public:
  SlicedAttentionNode(const Tensor& qkv, std::int64_t heads, const TokenParts& parts, SequenceExchange exchange,
                      const Tensor& y, const std::vector<SliceAttention>& slices)
      : Node("sliced_attention", {qkv}), heads_(heads), parts_(parts), exchange_(exchange) {
    save("qkv", qkv);
    save("y", y);
    std::transform(slices.begin(), slices.end(), std::back_inserter(log_sums_),
                   [](const SliceAttention& slice) { return slice.log_sums(); });
  }
  Gradients backward(const Tensor& grad, const NeedsInputGrad&) override {
    const Tensor qkv = saved("qkv");
    std::vector<SliceAttention> slices = slices_of(qkv, heads_, parts_);
    const auto ranks = slices.size();
    std::vector<std::vector<Tensor>> contributions(ranks, std::vector<Tensor>(ranks));  // [source][rank]
    for (std::size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      slices[r].begin_grad(cut_tokens(grad, parts_, rank), cut_tokens(saved("y"), parts_, rank), log_sums_[r]);
      grad_of_all(
          slices[r], rank, parts_.ranks, [&](int source) { return slices[static_cast<std::size_t>(source)].keys(); },
          [&](int source, const Tensor& mine) { contributions[static_cast<std::size_t>(source)][r] = mine; });
    }
    Tensor grad_qkv = empty_like(grad, qkv.shape());
    for (std::size_t r = 0; r < ranks; ++r) {
      paste_tokens(slices[r].grad_qkv(sum_of(contributions[r], r)), parts_, static_cast<int>(r), grad_qkv);
    }
    return {grad_qkv};
  }

 private:
  /// Returns the sum of what all ranks contribute to the gradient of rank `owner`'s keys: in the order in which the
  /// ring passes them, or in rank order.
  Tensor sum_of(const std::vector<Tensor>& of_ranks, std::size_t owner) const {
    const std::size_t first = exchange_ == SequenceExchange::ring ? owner : 0;
    Tensor sum = of_ranks[first];
    for (std::size_t i = 1; i < of_ranks.size(); ++i) {
      kernels(sum.device()).add_scaled(of_ranks[(first + i) % of_ranks.size()], 1, sum);
    }
    return sum;
  }

  std::int64_t heads_;
  TokenParts parts_;
  SequenceExchange exchange_;
  std::vector<Tensor> log_sums_;  // of each slice
};

}  // namespace

Tensor sequence_attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, SequenceExchange exchange,
                          const TensorGroup& group) {
  const TokenParts parts{group.ranks, mask};
  if (exchange == SequenceExchange::all_to_all) {
    return heads_to_tokens(attention(tokens_to_heads(qkv, heads, parts, group), heads / group.ranks, mask), parts,
                           group);
  }
  const Span span("sequence_attention", "forward");
  SliceAttention slice(parts, group.rank, heads, qkv);
  Tensor all_keys;
  if (exchange == SequenceExchange::all_gather) {
    all_keys = gathered_keys(slice.keys(), group);
    attend_to_all(slice, group.rank, group.ranks,
                  [&](int source) { return keys_of_rank(all_keys, source, group.ranks); });
  } else {
    attend_to_all(slice, group.rank, group.ranks, RingKeys(slice.keys(), group));
  }
  const Tensor y = slice.result();
  return recorded<SequenceAttentionNode>(y, {&qkv}, qkv, heads, parts, group, slice, y, all_keys);
}

Tensor sliced_attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, SequenceExchange exchange,
                        int ranks) {
  if (exchange == SequenceExchange::all_to_all) {
    return attention(qkv, heads, mask);
  }
  const Span span("sliced_attention", "forward");
  const TokenParts parts{ranks, mask};
  std::vector<SliceAttention> slices = slices_of(qkv, heads, parts);
  Tensor y = empty_like(qkv, qkv.shape().with(2, qkv.size(2) / 3));
  for (int rank = 0; rank < ranks; ++rank) {
    SliceAttention& slice = slices[static_cast<std::size_t>(rank)];
    attend_to_all(slice, rank, ranks, [&](int source) { return slices[static_cast<std::size_t>(source)].keys(); });
    paste_tokens(slice.result(), parts, rank, y);
  }
  return recorded<SlicedAttentionNode>(y, {&qkv}, qkv, heads, parts, exchange, y, slices);
}

}  // namespace stagecoach
