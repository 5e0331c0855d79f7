/// @file
/// Attention: on tensor cores by the kernels of tensor_core_attention.cuh, where TF32 is allowed; of narrow heads in
/// float32 by those of fused_attention.cuh; else as products of matrices with a softmax between them. In that case the
/// [T, T] probabilities of all heads, and in the backward their gradients, are in working memory during a call. The
/// backward computes them again.

#include <cmath>
#include <type_traits>

#include "core/cuda_backend.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/batched_product.cuh"
#include "core/kernels/cuda/fused_attention.cuh"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/tensor_core_attention.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// The extents of y [N, T, W], and where the matrices of its heads are.
struct AttentionExtents {
  AttentionExtents(const Tensor& y, std::int64_t heads_, AttentionMask mask)
      : batches(y.size(0) * heads_),
        tokens(to_int(y.size(1))),
        width(to_int(y.size(2))),
        heads(to_int(heads_)),
        causal(mask == AttentionMask::causal) {
    to_int(3 * y.size(1) * y.size(2), kMaxElements);
  }
  int head_width() const { return width / heads; }
  BatchOffsets in_tokens(int row) const { return {heads, static_cast<long long>(tokens) * row, head_width()}; }
  BatchOffsets in_scores() const { return {1, static_cast<long long>(tokens) * tokens, 0}; }
  Shape scores() const {
    to_int(std::int64_t{1} * tokens * tokens, kMaxElements);
    return {batches, tokens, tokens};
  }
  bool are_narrow() const { return head_width() <= kMaxFusedWidth; }
  bool fit_tensor_cores(Device device) const { return head_width() <= kMaxTensorCoreWidth && uses_tf32(device); }
  std::int64_t batches;
  int tokens;
  int width;
  int heads;
  bool causal;
};

/// [T, D] of each head, in tokens `row` elements long, as a factor whose K index is along D, or along T.
template <class T>
BatchedOperand<T, true> along_features(const AttentionExtents& e, const T* data, int row) {
  return {{data, e.tokens, row, 1}, e.in_tokens(row)};
}
template <class T>
BatchedOperand<T, false> along_tokens(const AttentionExtents& e, const T* data, int row) {
  return {{data, e.head_width(), 1, row}, e.in_tokens(row)};
}

/// scores [N heads, T, T] = factor * a b^T, for a and b [T, D].
template <class T>
void multiply_features(const AttentionExtents& e, const T* a, int a_row, const T* b, int b_row, T factor,
                       Tensor& scores) {
  const ProductPart part = e.causal ? ProductPart::lower_result : ProductPart::all;
  const BatchedResult<T> result{scores.mutable_data<T>(), e.tokens, e.in_scores(), factor, part};
  multiply_batches<T>(scores.device(), e.batches, {e.tokens, e.tokens, e.head_width()}, along_features(e, a, a_row),
                      along_features(e, b, b_row), result);
}

/// out [T, D] = factor * scores times b [T, D], or the transposed scores times b.
template <class T, bool kTransposed>
void multiply_tokens(const AttentionExtents& e, const Tensor& scores, const T* b, int b_row, T factor, T* out,
                     int out_row) {
  const int across = kTransposed ? 1 : e.tokens;
  const BatchedOperand<T, !kTransposed> a{{scores.data<T>(), e.tokens, across, kTransposed ? e.tokens : 1},
                                          e.in_scores()};
  const ProductPart part = !e.causal ? ProductPart::all : kTransposed ? ProductPart::upper_a : ProductPart::lower_a;
  const BatchedResult<T> result{out, out_row, e.in_tokens(out_row), factor, part};
  multiply_batches<T>(scores.device(), e.batches, {e.tokens, e.head_width(), e.tokens}, a, along_tokens(e, b, b_row),
                      result);
}

/// Calls body(column, visible) for the columns of this thread in a row of causal scores, up to the end of the
/// diagonal's tile: products read so far.
template <int kThreads, class Body>
__device__ void for_each_causal_column(int tokens, int thread, int query, const Body& body) {
  const int end = (query / kTile + 1) * kTile;
  for (int c = thread; c < (end < tokens ? end : tokens); c += kThreads) {
    body(c, c <= query);
  }
}

/// The softmax over the first t + 1 scores of query t, in place; the others of the diagonal's tile become 0. `rows`: of
/// all heads.
template <int kThreads, class T>
__global__ void causal_softmax_kernel(int rows, int tokens, T* scores) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const int query = row % tokens;
  T* s = scores + static_cast<long long>(row) * tokens;
  const LogSoftmax<T> log_softmax = log_softmax_of<kThreads>(reduction, thread, s, query + 1);
  for_each_causal_column<kThreads>(tokens, thread, query,
                                   [&](int c, bool visible) { s[c] = visible ? exp(log_softmax(s[c])) : T(0); });
}

/// Its gradient, in place of dp, the gradient of the probabilities p.
template <int kThreads, class T>
__global__ void causal_softmax_grad_kernel(int rows, int tokens, const T* probabilities, T* grads) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const int query = row % tokens;
  const T* p = probabilities + static_cast<long long>(row) * tokens;
  T* dp = grads + static_cast<long long>(row) * tokens;
  T sum = 0;
  for (int c = thread; c <= query; c += kThreads) {
    sum += p[c] * dp[c];
  }
  sum = reduce_row<kThreads>(reduction, sum, Sum{});
  for_each_causal_column<kThreads>(tokens, thread, query,
                                   [&](int c, bool visible) { dp[c] = visible ? p[c] * (dp[c] - sum) : T(0); });
}

/// Replaces scores [N heads, T, T] by their softmax over the keys.
template <class T>
void softmax_of_scores(const AttentionExtents& e, Tensor& scores) {
  Tensor rows = scores.alias({e.batches * e.tokens, e.tokens}, 0);
  if (!e.causal) {
    return kernels().softmax(rows, rows);
  }
  const int count = to_int(rows.size(0));
  with_threads_for(count, e.tokens, [&]<int kThreads>(unsigned blocks) {
    launch(causal_softmax_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(scores.device()), count,
           e.tokens, scores.mutable_data<T>());
  });
}

/// Replaces dp, the gradient of the probabilities p, by that of the scores before their scale.
template <class T>
void softmax_grad_of_scores(const AttentionExtents& e, const Tensor& p, Tensor& dp) {
  Tensor rows = dp.alias({e.batches * e.tokens, e.tokens}, 0);
  if (!e.causal) {
    return kernels().softmax_grad(rows, p.alias(rows.shape(), 0), rows);
  }
  const int count = to_int(rows.size(0));
  with_threads_for(count, e.tokens, [&]<int kThreads>(unsigned blocks) {
    launch(causal_softmax_grad_kernel<kThreads, T>, blocks, kRowBlockThreads, 0, compute_stream(dp.device()), count,
           e.tokens, p.data<T>(), dp.mutable_data<T>());
  });
}

/// Returns softmax(q k^T / sqrt(D)) [N heads, T, T]; with the causal mask, of tiles up to the diagonal only.
template <class T>
Tensor probabilities(const AttentionExtents& e, const Tensor& qkv, T scale) {
  Tensor p = Tensor::empty(e.scores(), qkv.dtype(), qkv.device());
  const T* q = qkv.data<T>();
  multiply_features<T>(e, q, 3 * e.width, q + e.width, 3 * e.width, scale, p);
  softmax_of_scores<T>(e, p);
  return p;
}

template <class T>
void attention_by_products(const AttentionExtents& e, const Tensor& qkv, T scale, Tensor& y) {
  const Tensor p = probabilities<T>(e, qkv, scale);
  const T* v = qkv.data<T>() + 2 * e.width;
  multiply_tokens<T, false>(e, p, v, 3 * e.width, T(1), y.mutable_data<T>(), e.width);
}

template <class T>
void attention_grad_by_products(const AttentionExtents& e, const Tensor& grad_y, const Tensor& qkv, T scale,
                                Tensor& grad_qkv) {
  const int row = 3 * e.width;
  const T* q = qkv.data<T>();
  const T* upstream = grad_y.data<T>();
  T* grad = grad_qkv.mutable_data<T>();
  const Tensor p = probabilities<T>(e, qkv, scale);
  multiply_tokens<T, true>(e, p, upstream, e.width, T(1), grad + 2 * e.width, row);
  Tensor ds = Tensor::empty(e.scores(), qkv.dtype(), qkv.device());
  multiply_features<T>(e, upstream, e.width, q + 2 * e.width, row, T(1), ds);
  softmax_grad_of_scores<T>(e, p, ds);
  multiply_tokens<T, false>(e, ds, q + e.width, row, scale, grad, row);
  multiply_tokens<T, true>(e, ds, q, row, scale, grad + e.width, row);
}

/// Calls body<width>(heads, blocks) with the smallest of the widths that holds a head, unless there are no tokens.
template <int kWidth, int... kWider, class Body>
void with_width(const AttentionExtents& e, const Body& body) {
  if constexpr (sizeof...(kWider) > 0) {
    if (e.head_width() > kWidth) {
      return with_width<kWider...>(e, body);
    }
  }
  const int tiles = (e.tokens + kTokenTile - 1) / kTokenTile;
  const auto blocks = static_cast<unsigned>(to_int(e.batches * tiles));
  if (blocks > 0) {
    body.template operator()<kWidth>(Heads{e.tokens, e.heads, e.head_width(), tiles, e.causal}, blocks);
  }
}

void attention_fused(const AttentionExtents& e, const Tensor& qkv, float scale, Tensor& y) {
  with_width<16, kMaxFusedWidth>(e, [&]<int kWidth>(const Heads& heads, unsigned blocks) {
    launch(attention_kernel<kWidth>, blocks, kTokenTile, 0, compute_stream(qkv.device()), heads, qkv.data<float>(),
           e.width, scale, y.mutable_data<float>());
  });
}

void attention_grad_fused(const AttentionExtents& e, const Tensor& grad_y, const Tensor& qkv, float scale,
                          Tensor& grad_qkv) {
  with_width<16, kMaxFusedWidth>(e, [&]<int kWidth>(const Heads& heads, unsigned blocks) {
    constexpr std::int64_t kFloats = sizeof(QueryStatistics) / sizeof(float);
    Workspace<float> workspace(kFloats * e.batches * e.tokens, qkv.device());
    auto* statistics = reinterpret_cast<QueryStatistics*>(workspace.data());
    const cudaStream_t stream = compute_stream(qkv.device());
    launch(attention_grad_queries_kernel<kWidth>, blocks, kTokenTile, 0, stream, heads, grad_y.data<float>(),
           qkv.data<float>(), e.width, scale, grad_qkv.mutable_data<float>(), statistics);
    launch(attention_grad_keys_kernel<kWidth>, blocks, kTokenTile, 0, stream, heads, grad_y.data<float>(),
           qkv.data<float>(), e.width, scale, statistics, grad_qkv.mutable_data<float>());
  });
}

/// Calls body<kWidth, kVector, kOneTile>(heads, blocks) for the kernels on tensor cores.
template <class Body, class... Arrays>
void with_tensor_core_heads(const AttentionExtents& e, const Body& body, const Arrays*... arrays) {
  with_width<16, 32, kMaxTensorCoreWidth>(e, [&]<int kWidth>(const Heads& heads, unsigned blocks) {
    const auto with_vector = [&]<int kVector>() {
      if (heads.tiles == 1) {
        body.template operator()<kWidth, kVector, true>(heads, blocks);
      } else {
        body.template operator()<kWidth, kVector, false>(heads, blocks);
      }
    };
    with_vector_width(heads.width, with_vector, arrays...);
  });
}

void attention_on_tensor_cores(const AttentionExtents& e, const Tensor& qkv, float scale, Tensor& y) {
  const float* in = qkv.data<float>();
  float* out = y.mutable_data<float>();
  const auto run = [&]<int kWidth, int kVector, bool kOneTile>(const Heads& heads, unsigned blocks) {
    launch(tensor_core_attention_kernel<kWidth, kVector, kOneTile>, blocks, kTensorCoreThreads, 0,
           compute_stream(qkv.device()), AttentionInputs{heads, e.width, scale, in, nullptr}, out);
  };
  with_tensor_core_heads(e, run, in, out);
}

void attention_grad_on_tensor_cores(const AttentionExtents& e, const Tensor& grad_y, const Tensor& qkv, float scale,
                                    Tensor& grad_qkv) {
  const float* upstream = grad_y.data<float>();
  const float* in = qkv.data<float>();
  float* out = grad_qkv.mutable_data<float>();
  const auto run = [&]<int kWidth, int kVector, bool kOneTile>(const Heads& heads, unsigned blocks) {
    constexpr std::int64_t kFloats = sizeof(QueryLogSum) / sizeof(float);
    Workspace<float> workspace(kFloats * blocks * kTokenTile, qkv.device());
    const auto launch_one = [&](auto kernel) {
      launch(kernel, blocks, kTensorCoreThreads, 0, compute_stream(qkv.device()),
             AttentionInputs{heads, e.width, scale, in, upstream}, reinterpret_cast<QueryLogSum*>(workspace.data()),
             out);
    };
    launch_one(tensor_core_attention_grad_kernel<kWidth, kVector, true, kOneTile>);
    if constexpr (!kOneTile) {
      launch_one(tensor_core_attention_grad_kernel<kWidth, kVector, false, true>);
    }
  };
  with_tensor_core_heads(e, run, upstream, in, out);
}

namespace {

void attention(const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& y) {
  dispatch_floating(qkv.dtype(), "attention", [&]<class T>() {
    const AttentionExtents e(y, heads, mask);
    const T scale = 1 / std::sqrt(static_cast<T>(e.head_width()));
    if constexpr (std::is_same_v<T, float>) {
      if (e.fit_tensor_cores(qkv.device())) {
        return attention_on_tensor_cores(e, qkv, scale, y);
      }
      if (e.are_narrow()) {
        return attention_fused(e, qkv, scale, y);
      }
    }
    attention_by_products<T>(e, qkv, scale, y);
  });
}

void attention_grad(const Tensor& grad_y, const Tensor& qkv, std::int64_t heads, AttentionMask mask, Tensor& grad_qkv) {
  dispatch_floating(qkv.dtype(), "attention_grad", [&]<class T>() {
    const AttentionExtents e(grad_y, heads, mask);
    const T scale = 1 / std::sqrt(static_cast<T>(e.head_width()));
    if constexpr (std::is_same_v<T, float>) {
      if (e.fit_tensor_cores(qkv.device())) {
        return attention_grad_on_tensor_cores(e, grad_y, qkv, scale, grad_qkv);
      }
      if (e.are_narrow()) {
        return attention_grad_fused(e, grad_y, qkv, scale, grad_qkv);
      }
    }
    attention_grad_by_products<T>(e, grad_y, qkv, scale, grad_qkv);
  });
}

}  // namespace

void add_attention(Kernels& table) {
  table.attention = attention;
  table.attention_grad = attention_grad;
}

}  // namespace stagecoach::cuda
