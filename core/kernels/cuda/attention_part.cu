/// @file
/// Attention to a part of the keys, as products of matrices with a softmax between them. The [S, K] probabilities of
/// all heads, and in the backward their gradients, are in working memory during a call. What a mask hides is computed
/// and dropped.

#include <cmath>

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/batched_product.cuh"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// The heads of all samples: queries [S, D], keys and values [K, D]. A row of scores is a query of a head.
struct PartExtents {
  int batches;  // samples times heads
  int heads;
  int queries;
  int keys;
  int width;  // of all heads
  bool causal;
  int head_width() const { return width / heads; }
  int rows() const { return batches * queries; }
  __device__ int visible(int row) const { return causal ? keys - queries + row % queries + 1 : keys; }
  /// Returns where the features of a row's head and query are in [N, S, W].
  __device__ long long features(int row) const {
    const int batch = row / queries;
    return (static_cast<long long>(batch / heads) * queries + row % queries) * width + batch % heads * (width / heads);
  }
  BatchOffsets in_queries() const { return {heads, static_cast<long long>(queries) * width, head_width()}; }
  BatchOffsets in_keys() const { return {heads, 2LL * keys * width, head_width()}; }
  BatchOffsets in_scores() const { return {1, static_cast<long long>(queries) * keys, 0}; }
  Shape scores() const {
    to_int(std::int64_t{1} * queries * keys, kMaxElements);
    return {batches, queries, keys};
  }
};

/// Replaces scores by their softmax over the visible keys, and the others by 0.
template <int kThreads, class T>
__global__ void part_softmax_kernel(PartExtents e, int rows, T* scores, T* log_sums) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  T* s = scores + static_cast<long long>(row) * e.keys;
  const int visible = e.visible(row);
  const LogSoftmax<T> log_softmax = log_softmax_of<kThreads>(reduction, thread, s, visible);
  for (int c = thread; c < e.keys; c += kThreads) {
    s[c] = c < visible ? exp(log_softmax(s[c])) : T(0);
  }
  if (thread == 0) {
    log_sums[row] = log_softmax.max + log_softmax.log_sum;
  }
}

/// Replaces scores by p = exp(score - log_sum), and dp by p (dp - sum of grad_y y), the gradient of the scores before
/// their scale.
template <int kThreads, class T>
__global__ void part_softmax_grad_kernel(PartExtents e, int rows, const T* grad_y, const T* y, const T* log_sums,
                                         T* scores, T* grads) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const long long features = e.features(row);
  T sum = 0;
  for (int d = thread; d < e.width / e.heads; d += kThreads) {
    sum += grad_y[features + d] * y[features + d];
  }
  sum = reduce_row<kThreads>(reduction, sum, Sum{});
  T* p = scores + static_cast<long long>(row) * e.keys;
  T* dp = grads + static_cast<long long>(row) * e.keys;
  const int visible = e.visible(row);
  for (int c = thread; c < e.keys; c += kThreads) {
    p[c] = c < visible ? exp(p[c] - log_sums[row]) : T(0);
    dp[c] = c < visible ? p[c] * (dp[c] - sum) : T(0);
  }
}

/// One thread per query of a head.
template <class T>
__global__ void merge_attention_kernel(PartExtents e, int rows, const T* part, const T* part_log_sums, T* y,
                                       T* log_sums) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) {
    return;
  }
  const T mine = log_sums[row];
  const T other = part_log_sums[row];
  const T largest = Max{}(mine, other);
  const T log_sum = largest + log(exp(mine - largest) + exp(other - largest));
  const T share = exp(mine - log_sum);
  const T other_share = exp(other - log_sum);
  const long long features = e.features(row);
  for (long long at = features; at < features + e.width / e.heads; ++at) {
    y[at] = share * y[at] + other_share * part[at];
  }
  log_sums[row] = log_sum;
}

/// [tokens, D] of each head as a factor whose K index is along D, or along the tokens, which are `row` elements long.
template <class T>
BatchedOperand<T, true> along_features(const T* data, int tokens, int row, const BatchOffsets& offsets) {
  return {{data, tokens, row, 1}, offsets};
}
template <class T>
BatchedOperand<T, false> along_tokens(const T* data, int head_width, int row, const BatchOffsets& offsets) {
  return {{data, head_width, 1, row}, offsets};
}

/// scores [N heads, S, K] = factor * a b^T, for a [S, D] in tokens W long, and b [K, D] in tokens 2 W long.
template <class T>
void multiply_scores(const PartExtents& e, const T* a, const T* b, T factor, Tensor& scores) {
  multiply_batches<T>(scores.device(), e.batches, {e.queries, e.keys, e.head_width()},
                      along_features(a, e.queries, e.width, e.in_queries()),
                      along_features(b, e.keys, 2 * e.width, e.in_keys()),
                      BatchedResult<T>{scores.mutable_data<T>(), e.keys, e.in_scores(), factor});
}

/// out [S, D] = factor * scores times b [K, D].
template <class T>
void multiply_keys(const PartExtents& e, const Tensor& scores, const T* b, T factor, T* out) {
  const BatchedOperand<T, true> a{{scores.data<T>(), e.queries, e.keys, 1}, e.in_scores()};
  multiply_batches<T>(scores.device(), e.batches, {e.queries, e.head_width(), e.keys}, a,
                      along_tokens(b, e.head_width(), 2 * e.width, e.in_keys()),
                      BatchedResult<T>{out, e.width, e.in_queries(), factor});
}

/// out [K, D] = factor * the transposed scores times b [S, D].
template <class T>
void multiply_queries(const PartExtents& e, const Tensor& scores, const T* b, T factor, T* out) {
  const BatchedOperand<T, false> a{{scores.data<T>(), e.keys, 1, e.keys}, e.in_scores()};
  multiply_batches<T>(scores.device(), e.batches, {e.keys, e.head_width(), e.queries}, a,
                      along_tokens(b, e.head_width(), e.width, e.in_queries()),
                      BatchedResult<T>{out, 2 * e.width, e.in_keys(), factor});
}

namespace {

PartExtents part_extents(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask) {
  to_int(kv.numel(), kMaxElements);
  return {to_int(q.size(0) * heads), to_int(heads),     to_int(q.size(1)),
          to_int(kv.size(1)),        to_int(q.size(2)), mask == AttentionMask::causal};
}

template <class T>
T scale_of(const PartExtents& e) {
  return 1 / std::sqrt(static_cast<T>(e.head_width()));
}

void attention_part(const Tensor& q, const Tensor& kv, std::int64_t heads, AttentionMask mask, Tensor& y,
                    Tensor& log_sums) {
  dispatch_floating(q.dtype(), "attention_part", [&]<class T>() {
    const PartExtents e = part_extents(q, kv, heads, mask);
    const T* k = kv.data<T>();
    Tensor p = Tensor::empty(e.scores(), q.dtype(), q.device());
    multiply_scores<T>(e, q.data<T>(), k, scale_of<T>(e), p);
    with_threads_for(e.rows(), e.keys, [&]<int kThreads>(unsigned blocks) {
      launch(part_softmax_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(q.device()), e, e.rows(),
             p.mutable_data<T>(), log_sums.mutable_data<T>());
    });
    multiply_keys<T>(e, p, k + e.width, T(1), y.mutable_data<T>());
  });
}

void attention_part_grad(const Tensor& grad_y, const Tensor& y, const Tensor& q, const Tensor& kv,
                         const Tensor& log_sums, std::int64_t heads, AttentionMask mask, Tensor& grad_q,
                         Tensor& grad_kv) {
  dispatch_floating(q.dtype(), "attention_part_grad", [&]<class T>() {
    const PartExtents e = part_extents(q, kv, heads, mask);
    const T scale = scale_of<T>(e);
    const T* upstream = grad_y.data<T>();
    const T* k = kv.data<T>();
    T* grad_k = grad_kv.mutable_data<T>();
    Tensor p = Tensor::empty(e.scores(), q.dtype(), q.device());
    Tensor ds = Tensor::empty(e.scores(), q.dtype(), q.device());
    multiply_scores<T>(e, q.data<T>(), k, scale, p);
    multiply_scores<T>(e, upstream, k + e.width, T(1), ds);
    with_threads_for(e.rows(), e.keys, [&]<int kThreads>(unsigned blocks) {
      launch(part_softmax_grad_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(q.device()), e,
             e.rows(), upstream, y.data<T>(), log_sums.data<T>(), p.mutable_data<T>(), ds.mutable_data<T>());
    });
    multiply_keys<T>(e, ds, k, scale, grad_q.mutable_data<T>());
    multiply_queries<T>(e, ds, q.data<T>(), scale, grad_k);
    multiply_queries<T>(e, p, upstream, T(1), grad_k + e.width);
  });
}

void merge_attention(const Tensor& part, const Tensor& part_log_sums, Tensor& y, Tensor& log_sums) {
  dispatch_floating(y.dtype(), "merge_attention", [&]<class T>() {
    const std::int64_t heads = log_sums.size(1);
    const PartExtents e{to_int(y.size(0) * heads), to_int(heads), to_int(y.size(1)), 0, to_int(y.size(2)), false};
    constexpr int kThreads = 128;
    if (e.rows() > 0) {
      launch(merge_attention_kernel<T>, static_cast<unsigned>((e.rows() + kThreads - 1) / kThreads), kThreads, 0,
             compute_stream(y.device()), e, e.rows(), part.data<T>(), part_log_sums.data<T>(), y.mutable_data<T>(),
             log_sums.mutable_data<T>());
    }
  });
}

}  // namespace

void add_attention_part(Kernels& table) {
  table.attention_part = attention_part;
  table.attention_part_grad = attention_part_grad;
  table.merge_attention = merge_attention;
}

}  // namespace stagecoach::cuda
