#pragma once
/// @file
/// Attention on tensor cores in TF32 (core/cuda/tensor_core.h), for heads of up to 64 features. As in
/// fused_attention.cuh the [T, T] scores are never in memory; here a warp holds those of 16 tokens with a tile of
/// others in registers (Dao, "FlashAttention-2", 2023, Algorithms 1 and 2). The softmax is computed in float32.

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/block_reduce.cuh"
#include "core/kernels/cuda/fused_attention.cuh"
#include "core/kernels/cuda/tf32_tokens.cuh"

namespace stagecoach::cuda {

inline constexpr int kMaxTensorCoreWidth = 64;        ///< features of a head
inline constexpr int kTileScores = kTokenTile / 8;    ///< fragments of scores of a warp with a tile of tokens
inline constexpr float kLog2E = 1.4426950408889634F;  ///< exp(x) = 2^(x log2(e))

/// The registers allow so many resident blocks per SM, forward and backward.
template <int kWidth, bool kOneTile>
inline constexpr int kAttentionBlocks = (kWidth == 16   ? 4
                                         : kWidth == 32 ? 3
                                                        : 2) +
                                        (kOneTile ? 1 : 0);
template <int kWidth>
inline constexpr int kAttentionGradBlocks = kWidth == 16 ? 3 : 2;

/// What the kernels read: qkv [N, T, 3 W], and the backward grad_y [N, T, W] too.
struct AttentionInputs {
  Heads heads;
  int w;
  float scale;
  const float* qkv;
  const float* grad_y;
  __device__ Tokens<const float> queries() const { return {qkv, 3 * w}; }
  __device__ Tokens<const float> keys() const { return {qkv + w, 3 * w}; }
  __device__ Tokens<const float> values() const { return {qkv + 2 * w, 3 * w}; }
  __device__ Tokens<const float> grads() const { return {grad_y, w}; }
};

/// Returns the reduction of the values of the four threads that share a row.
template <class Operation>
__device__ float reduce_places(float value, Operation operation) {
  value = operation(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return operation(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

/// OnlineSoftmax of this thread's two rows; `sum` is that of its own columns. Scores count `factor` times, which
/// contains log2(e).
struct OnlineSoftmaxOfRows {
  float factor;
  float max[2] = {std::numeric_limits<float>::lowest(), std::numeric_limits<float>::lowest()};
  float sum[2] = {};

  __device__ void exponentiate(float (&scores)[kTileScores][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTileScores; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[tile][i] = fast_exp2(scores[tile][i] * factor - max[i / 2] * factor);
      }
    }
  }
  /// Turns the scores of a tile into exp(score - maximum). Sums of earlier tiles need the factors `rescale`.
  __device__ void add(float (&scores)[kTileScores][4], float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
#pragma unroll
      for (int i = 0; i < 2 * kTileScores; ++i) {
        largest = fmaxf(largest, scores[i / 2][2 * half + i % 2]);
      }
      largest = reduce_places(largest, Max{});
      rescale[half] = fast_exp2((max[half] - largest) * factor);
      max[half] = largest;
      sum[half] *= rescale[half];
    }
    exponentiate(scores);
#pragma unroll
    for (int i = 0; i < 4 * kTileScores; ++i) {
      sum[i / 2 % 2] += scores[i / 4][i % 4];
    }
  }
};

/// Scores of this thread's queries with keys of the tile at `begin` that they do not see become -infinity.
__device__ inline void mask_scores(const Heads& heads, int begin, float (&scores)[kTileScores][4]) {
  if (heads.count(begin) < kTokenTile || heads.is_diagonal(begin)) {
    const int visible[2] = {heads.visible(begin, lane_row()), heads.visible(begin, lane_row() + 8)};
#pragma unroll
    for (int i = 0; i < 4 * kTileScores; ++i) {
      if (i / 4 * 8 + 2 * lane_place() + i % 2 >= visible[i / 2 % 2]) {
        scores[i / 4][i % 4] = -INFINITY;
      }
    }
  }
}

/// y [T, D] = softmax(scale q k^T) v: a warp per 16 queries.
template <int kWidth, int kVector, bool kOneTile>
__global__ void __launch_bounds__(kTensorCoreThreads, kAttentionBlocks<kWidth, kOneTile>)
    tensor_core_attention_kernel(AttentionInputs in, float* y) {
  STAGECOACH_SHARED(TwoTf32Tiles<kWidth>, tiles);
  const auto parts = fetch_parts<kWidth, kVector>(in.heads, in.keys(), in.values(), 0);
  const auto query = WarpTokens<kWidth>::template load<kVector>(in.heads, in.queries());
  OnlineSoftmaxOfRows softmax{in.scale * kLog2E};
  WarpSums<kWidth> out;
  for_each_tile<kVector, kOneTile>(tiles, in.heads, in.heads.keys(), in.keys(), in.values(), parts, [&](int begin) {
    float scores[kTileScores][4];
    float rescale[2];
    multiply_features(query, tiles.a, 0, scores);
    mask_scores(in.heads, begin, scores);
    softmax.add(scores, rescale);
    out.scale(rescale);
    out.add(scores, tiles.b, 0);
  });
  out.scale({1 / reduce_places(softmax.sum[0], Sum{}), 1 / reduce_places(softmax.sum[1], Sum{})});
  out.template store<kVector>(in.heads, {y, in.w});
}

/// The probabilities of a query are 2^(scale log2(e) score - log_sum); `mean` is that of QueryStatistics.
struct QueryLogSum {
  float log_sum;
  float mean;
};

/// The gradient of the queries, and their statistics [N heads, tiles, kTokenTile], finite ones for queries that do not
/// exist: a warp per 16 queries. If all keys are in one tile, their scores stay in registers, otherwise they are
/// computed twice.
template <int kWidth, int kVector, bool kOneTile>
__device__ void attention_grad_queries(TwoTf32Tiles<kWidth>& tiles, const AttentionInputs& in, QueryLogSum* statistics,
                                       float* grad_qkv) {
  const auto parts = fetch_parts<kWidth, kVector>(in.heads, in.keys(), in.values(), 0);
  const auto query = WarpTokens<kWidth>::template load<kVector>(in.heads, in.queries());
  const auto grad = WarpTokens<kWidth>::template load<kVector>(in.heads, in.grads());
  float scores[kTileScores][4];
  float products[kTileScores][4];  // of grad_y and the values
  const auto compute = [&](int begin) {
    multiply_features(query, tiles.a, 0, scores);
    multiply_features(grad, tiles.b, 0, products);
    mask_scores(in.heads, begin, scores);
  };
  OnlineSoftmaxOfRows softmax{in.scale * kLog2E};
  float mean[2] = {};
  for_each_tile<kVector, kOneTile>(tiles, in.heads, in.heads.keys(), in.keys(), in.values(), parts, [&](int begin) {
    float rescale[2];
    compute(begin);
    softmax.add(scores, rescale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      mean[i] *= rescale[i];
    }
#pragma unroll
    for (int i = 0; i < 4 * kTileScores; ++i) {
      mean[i / 2 % 2] += scores[i / 4][i % 4] * products[i / 4][i % 4];
    }
  });
  float inverse_sum[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = reduce_places(softmax.sum[half], Sum{});
    inverse_sum[half] = 1 / sum;
    mean[half] = reduce_places(mean[half], Sum{}) / sum;
    if (lane_place() == 0) {
      statistics[blockIdx.x * kTokenTile + lane_row() + 8 * half] = {softmax.max[half] * softmax.factor + log2f(sum),
                                                                     mean[half]};
    }
  }
  WarpSums<kWidth> grad_query;
  const auto add_tile = [&] {
#pragma unroll
    for (int i = 0; i < 4 * kTileScores; ++i) {
      scores[i / 4][i % 4] *= products[i / 4][i % 4] - mean[i / 2 % 2];
    }
    grad_query.add(scores, tiles.a, 0);
  };
  if constexpr (kOneTile) {
    add_tile();
  } else {
    const auto again = fetch_parts<kWidth, kVector>(in.heads, in.keys(), in.values(), 0);
    for_each_tile<kVector, kOneTile>(tiles, in.heads, in.heads.keys(), in.keys(), in.values(), again, [&](int begin) {
      compute(begin);
      softmax.exponentiate(scores);
      add_tile();
    });
  }
  grad_query.scale({in.scale * inverse_sum[0], in.scale * inverse_sum[1]});
  grad_query.template store<kVector>(in.heads, {grad_qkv, 3 * in.w});
}

inline constexpr int kGradTiles = kWarpTokens / 8;  ///< fragments of scores of keys that are computed at a time

/// Scores of this thread's keys with queries from `first` on of their own tile, which do not see them, become
/// -infinity.
__device__ inline void mask_earlier_queries(int first, float (&scores)[kGradTiles][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kGradTiles; ++i) {
    if (first + i / 4 * 8 + 2 * lane_place() + i % 2 < lane_row() + i / 2 % 2 * 8) {
      scores[i / 4][i % 4] = -INFINITY;
    }
  }
}

/// The gradients of keys and values, from the statistics of all queries: a warp per 16 keys.
template <int kWidth, int kVector, bool kOneTile>
__device__ void attention_grad_keys(TwoTf32Tiles<kWidth>& tiles, const AttentionInputs& in,
                                    const QueryLogSum* statistics, float* grad_qkv) {
  const TokenRange range = in.heads.queries();
  const auto parts = fetch_parts<kWidth, kVector>(in.heads, in.queries(), in.grads(), range.begin);
  const auto key = WarpTokens<kWidth>::template load<kVector>(in.heads, in.keys());
  const auto value = WarpTokens<kWidth>::template load<kVector>(in.heads, in.values());
  const QueryLogSum* head_statistics = statistics + in.heads.head() * in.heads.tiles * kTokenTile + 2 * lane_place();
  WarpSums<kWidth> grad_key;
  WarpSums<kWidth> grad_value;
  for_each_tile<kVector, kOneTile>(tiles, in.heads, range, in.queries(), in.grads(), parts, [&](int begin) {
    const int own = in.heads.is_diagonal(begin) ? lane_row() - lane_group() : -1;  // the warp's first token
#pragma unroll 1
    for (int first = own < 0 ? 0 : own; first < in.heads.count(begin); first += 8 * kGradTiles) {
      float probabilities[kGradTiles][4];
      float grad_scores[kGradTiles][4];
      multiply_features(key, tiles.a, first, probabilities);
      multiply_features(value, tiles.b, first, grad_scores);
      if (first == own) {
        mask_earlier_queries(first, probabilities);
      }
#pragma unroll
      for (int tile = 0; tile < kGradTiles; ++tile) {
        const auto two = *reinterpret_cast<const Vector2<QueryLogSum>*>(head_statistics + begin + first + 8 * tile);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const QueryLogSum& query_statistics = two.at[i % 2];
          const float p = fast_exp2(probabilities[tile][i] * (in.scale * kLog2E) - query_statistics.log_sum);
          probabilities[tile][i] = p;
          grad_scores[tile][i] = p * (grad_scores[tile][i] - query_statistics.mean);
        }
      }
      grad_value.add(probabilities, tiles.b, first);
      grad_key.add(grad_scores, tiles.a, first);
    }
  });
  grad_key.scale({in.scale, in.scale});
  grad_key.template store<kVector>(in.heads, {grad_qkv + in.w, 3 * in.w});
  grad_value.template store<kVector>(in.heads, {grad_qkv + 2 * in.w, 3 * in.w});
}

/// Both, or one of them: keys and values need the statistics of all queries of a head, which one block computes only if
/// there is one tile of them.
template <int kWidth, int kVector, bool kOfQueries, bool kOfKeys>
__global__ void __launch_bounds__(kTensorCoreThreads, kAttentionGradBlocks<kWidth>)
    tensor_core_attention_grad_kernel(AttentionInputs in, QueryLogSum* statistics, float* grad_qkv) {
  STAGECOACH_SHARED(TwoTf32Tiles<kWidth>, tiles);
  if constexpr (kOfQueries) {
    attention_grad_queries<kWidth, kVector, kOfKeys>(tiles, in, statistics, grad_qkv);
  }
  if constexpr (kOfKeys) {
    attention_grad_keys<kWidth, kVector, kOfQueries>(tiles, in, statistics, grad_qkv);
  }
}

}  // namespace stagecoach::cuda
