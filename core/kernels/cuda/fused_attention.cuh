#pragma once
/// @file
/// Attention of narrow heads without their [T, T] scores in memory: a thread computes the scores of one token when it
/// needs them (Dao et al., "FlashAttention", 2022, Algorithms 1 and 4). The backward has two kernels, one for the
/// queries and one for keys and values, so that every sum belongs to one thread, and its order is fixed.

#include <cmath>
#include <limits>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

inline constexpr int kMaxFusedWidth = 32;  ///< features of a head: more would not fit the registers
inline constexpr int kTokenTile = 64;      ///< tokens in shared memory; also the threads of a block
inline constexpr int kScoreChunk = 8;      ///< scores that a thread computes before it uses them
/// Resident blocks per SM, at least. They leave 65,536 / 64 / (128 / D) = 8 D registers to a thread.
template <int kWidth>
inline constexpr int kMinBlocksPerSm = 128 / kWidth;

/// Tokens in whose tiles a block looks for keys, or for queries.
struct TokenRange {
  int begin;
  int end;
};

/// The layout of the heads in tokens [N, T, …]; a block works on up to kTokenTile tokens of one head.
struct Heads {
  int tokens;  // T
  int heads;   // per sample
  int width;   // D
  int tiles;   // of T
  bool causal;
  __device__ int head() const { return static_cast<int>(blockIdx.x) / tiles; }
  __device__ int first_token() const { return static_cast<int>(blockIdx.x) % tiles * kTokenTile; }
  /// The offset of the head's first token, where tokens are `row` elements long.
  __device__ long long start(int row) const {
    return static_cast<long long>(head() / heads) * tokens * row + head() % heads * width;
  }
  /// How many tokens of the tile at `begin` exist.
  __device__ int count(int begin) const { return tokens - begin < kTokenTile ? tokens - begin : kTokenTile; }

  // With the causal mask: the block's tokens see no tile after their own one, and of that the tokens up to themselves.
  __device__ TokenRange keys() const { return {0, causal ? first_token() + 1 : tokens}; }
  __device__ TokenRange queries() const { return {causal ? first_token() : 0, tokens}; }
  __device__ bool is_diagonal(int begin) const { return causal && begin == first_token(); }
  /// How many tokens of the tile at `begin` the block's token `token` sees.
  __device__ int visible(int begin, int token) const {
    return is_diagonal(begin) && token < count(begin) ? token + 1 : count(begin);
  }
};

/// The features of a token in registers; those beyond D are 0.
template <int kWidth>
struct Features {
  float at[kWidth] = {};
  __device__ float dot(const Features& other) const {
    float sum = 0;
#pragma unroll
    for (int d = 0; d < kWidth; ++d) {
      sum += at[d] * other.at[d];
    }
    return sum;
  }
  __device__ void add(float factor, const Features& other) {
#pragma unroll
    for (int d = 0; d < kWidth; ++d) {
      at[d] += factor * other.at[d];
    }
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int d = 0; d < kWidth; ++d) {
      at[d] *= factor;
    }
  }
};

/// Tokens of a head in shared memory.
template <int kWidth>
class alignas(16) TokenTile {
 public:
  /// Loads the tokens from `begin` on. All threads of the block must call it; complete after the next barrier.
  __device__ void load(const Heads& heads, const float* tokens, int row, int begin) {
    for_each_feature([&](int token, int feature) {
      const bool inside = begin + token < heads.tokens && feature < heads.width;
      at_[token][feature] =
          predicated_load(inside, tokens + heads.start(row) + static_cast<long long>(begin + token) * row + feature);
    });
  }
  /// Stores them; the barrier after `put` is the caller's.
  __device__ void store(const Heads& heads, float* tokens, int row, int begin) const {
    for_each_feature([&](int token, int feature) {
      if (begin + token < heads.tokens && feature < heads.width) {
        tokens[heads.start(row) + static_cast<long long>(begin + token) * row + feature] = at_[token][feature];
      }
    });
  }
  __device__ Features<kWidth> get(int token) const {
    Features<kWidth> features;
#pragma unroll
    for (int d = 0; d < kWidth; d += 4) {
      const auto four = *reinterpret_cast<const Vector<float, 4>*>(&at_[token][d]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        features.at[d + i] = four.at[i];
      }
    }
    return features;
  }
  __device__ void put(int token, const Features<kWidth>& features) {
#pragma unroll
    for (int d = 0; d < kWidth; d += 4) {
      const float* from = features.at + d;
      *reinterpret_cast<Vector<float, 4>*>(&at_[token][d]) = {{from[0], from[1], from[2], from[3]}};
    }
  }

 private:
  /// Adjacent threads have adjacent features.
  template <class Body>
  __device__ static void for_each_feature(const Body& body) {
    constexpr int kTokens = kTokenTile / kWidth;  // that the threads of the block load at once
    const int token = static_cast<int>(threadIdx.x) / kWidth;
    const int feature = static_cast<int>(threadIdx.x) % kWidth;
#pragma unroll 8
    for (int first = 0; first < kTokenTile; first += kTokens) {
      body(first + token, feature);
    }
  }

  float at_[kTokenTile][kWidth + 4];  // + 4: rows stay aligned to vectors of four, and spread over the banks
};

template <int kWidth>
struct TwoTiles {
  TokenTile<kWidth> a;
  TokenTile<kWidth> b;
};

/// Stores this thread's token in memory by way of the tile, so that adjacent threads store adjacent features.
template <int kWidth>
__device__ void store_token(TokenTile<kWidth>& tile, const Heads& heads, const Features<kWidth>& features,
                            float* tokens, int row) {
  __syncthreads();  // all threads have read the tile
  tile.put(static_cast<int>(threadIdx.x), features);
  __syncthreads();  // the tile is complete
  tile.store(heads, tokens, row, heads.first_token());
}

/// Returns this thread's token, by way of the tile.
template <int kWidth>
__device__ Features<kWidth> load_token(TokenTile<kWidth>& tile, const Heads& heads, const float* tokens, int row) {
  __syncthreads();  // all threads have read the tile
  tile.load(heads, tokens, row, heads.first_token());
  __syncthreads();  // the tile is complete
  return tile.get(static_cast<int>(threadIdx.x));
}

/// Calls body(begin) for each tile of two sequences of tokens that `range` has a part of, when it is in `tiles`.
template <int kWidth, class Body>
__device__ void for_each_tile(TwoTiles<kWidth>& tiles, const Heads& heads, const TokenRange& range, const float* a,
                              int a_row, const float* b, int b_row, const Body& body) {
  for (int begin = range.begin; begin < range.end; begin += kTokenTile) {
    __syncthreads();  // all threads have read the tiles
    tiles.a.load(heads, a, a_row, begin);
    tiles.b.load(heads, b, b_row, begin);
    __syncthreads();  // the tiles are complete
    body(begin);
  }
}

/// The softmax of a row of scores that come in chunks: the maximum so far, and the sum of exp(score - maximum) (Milakov
/// and Gimelshein, "Online normalizer calculation for softmax", 2018).
struct OnlineSoftmax {
  float max = std::numeric_limits<float>::lowest();  // -infinity minus itself would be NaN
  float sum = 0;
  /// Turns a chunk of scores into exp(score - maximum). Returns the factor that sums of earlier chunks need, as the
  /// maximum may have grown.
  __device__ float add(float (&scores)[kScoreChunk]) {
    const float before = max;
#pragma unroll
    for (int j = 0; j < kScoreChunk; ++j) {
      max = max < scores[j] ? scores[j] : max;
    }
    const float factor = exp(before - max);
    sum *= factor;
#pragma unroll
    for (int j = 0; j < kScoreChunk; ++j) {
      scores[j] = exp(scores[j] - max);
      sum += scores[j];
    }
    return factor;
  }
};

/// Computes the scores of `query` and the keys of a tile from `begin` on; those from key `count` on are -infinity.
template <int kWidth>
__device__ void score_chunk(const Features<kWidth>& query, const TokenTile<kWidth>& keys, float scale, int begin,
                            int count, float (&scores)[kScoreChunk]) {
#pragma unroll
  for (int j = 0; j < kScoreChunk; ++j) {
    scores[j] = begin + j < count ? scale * query.dot(keys.get(begin + j)) : -INFINITY;
  }
}

/// The probabilities of a query are exp(score - max) * inverse_sum. `mean` is the mean, so weighted, of the products of
/// its output's gradient with the values (D of Algorithm 4).
struct QueryStatistics {
  float max;
  float inverse_sum;
  float mean;
};

/// y [T, D] = softmax(scale q k^T) v: a thread per query. `qkv` has rows of 3 W elements, `y` of W.
template <int kWidth>
__global__ void __launch_bounds__(kTokenTile, kMinBlocksPerSm<kWidth>)
    attention_kernel(Heads heads, const float* qkv, int w, float scale, float* y) {
  STAGECOACH_SHARED(TwoTiles<kWidth>, tiles);
  const Features<kWidth> query = load_token(tiles.a, heads, qkv, 3 * w);
  OnlineSoftmax softmax;
  Features<kWidth> out;
  for_each_tile(tiles, heads, heads.keys(), qkv + w, 3 * w, qkv + 2 * w, 3 * w, [&](int tile) {
    const int count = heads.visible(tile, static_cast<int>(threadIdx.x));
    for (int begin = 0; begin < count; begin += kScoreChunk) {
      float scores[kScoreChunk];
      score_chunk(query, tiles.a, scale, begin, count, scores);
      out.scale(softmax.add(scores));
#pragma unroll
      for (int j = 0; j < kScoreChunk; ++j) {
        out.add(scores[j], tiles.b.get(begin + j));
      }
    }
  });
  out.scale(1 / softmax.sum);
  store_token(tiles.a, heads, out, y, w);
}

/// The gradient of the queries, in rows of 3 W elements, and their statistics [N heads, T]: a thread per query.
template <int kWidth>
__global__ void __launch_bounds__(kTokenTile, kMinBlocksPerSm<kWidth>)
    attention_grad_queries_kernel(Heads heads, const float* grad_y, const float* qkv, int w, float scale,
                                  float* grad_queries, QueryStatistics* statistics) {
  STAGECOACH_SHARED(TwoTiles<kWidth>, tiles);
  const Features<kWidth> query = load_token(tiles.a, heads, qkv, 3 * w);
  const Features<kWidth> grad = load_token(tiles.a, heads, grad_y, w);
  OnlineSoftmax softmax;
  float mean = 0;
  for_each_tile(tiles, heads, heads.keys(), qkv + w, 3 * w, qkv + 2 * w, 3 * w, [&](int tile) {
    const int count = heads.visible(tile, static_cast<int>(threadIdx.x));
    for (int begin = 0; begin < count; begin += kScoreChunk) {
      float scores[kScoreChunk];
      score_chunk(query, tiles.a, scale, begin, count, scores);
      mean *= softmax.add(scores);
#pragma unroll
      for (int j = 0; j < kScoreChunk; ++j) {
        mean += scores[j] * grad.dot(tiles.b.get(begin + j));
      }
    }
  });
  const QueryStatistics mine{softmax.max, 1 / softmax.sum, mean / softmax.sum};
  const int token = heads.first_token() + static_cast<int>(threadIdx.x);
  if (token < heads.tokens) {
    statistics[static_cast<long long>(heads.head()) * heads.tokens + token] = mine;
  }
  Features<kWidth> grad_query;
  for_each_tile(tiles, heads, heads.keys(), qkv + w, 3 * w, qkv + 2 * w, 3 * w, [&](int tile) {
    const int count = heads.visible(tile, static_cast<int>(threadIdx.x));
    for (int j = 0; j < count; ++j) {
      const Features<kWidth> key = tiles.a.get(j);
      const float probability = exp(scale * query.dot(key) - mine.max) * mine.inverse_sum;
      grad_query.add(probability * (grad.dot(tiles.b.get(j)) - mine.mean), key);
    }
  });
  grad_query.scale(scale);
  store_token(tiles.a, heads, grad_query, grad_queries, 3 * w);
}

/// The gradients of keys and values, from the statistics of all queries: a thread per key.
template <int kWidth>
__global__ void __launch_bounds__(kTokenTile, kMinBlocksPerSm<kWidth>)
    attention_grad_keys_kernel(Heads heads, const float* grad_y, const float* qkv, int w, float scale,
                               const QueryStatistics* statistics, float* grad_qkv) {
  STAGECOACH_SHARED(TwoTiles<kWidth>, tiles);
  const Features<kWidth> key = load_token(tiles.a, heads, qkv + w, 3 * w);
  const Features<kWidth> value = load_token(tiles.a, heads, qkv + 2 * w, 3 * w);
  const QueryStatistics* head_statistics = statistics + static_cast<long long>(heads.head()) * heads.tokens;
  Features<kWidth> grad_key;
  Features<kWidth> grad_value;
  for_each_tile(tiles, heads, heads.queries(), qkv, 3 * w, grad_y, w, [&](int begin) {
    const int first = heads.is_diagonal(begin) ? static_cast<int>(threadIdx.x) : 0;  // that sees the key
    for (int i = first / 32 * 32; i < heads.count(begin); ++i) {                     // the same for the warp
      const QueryStatistics query_statistics = head_statistics[begin + i];
      const Features<kWidth> query = tiles.a.get(i);
      const Features<kWidth> grad = tiles.b.get(i);
      const float score = i < first ? -INFINITY : scale * query.dot(key);
      const float probability = exp(score - query_statistics.max) * query_statistics.inverse_sum;
      grad_value.add(probability, grad);
      grad_key.add(probability * (value.dot(grad) - query_statistics.mean), query);
    }
  });
  grad_key.scale(scale);
  store_token(tiles.a, heads, grad_key, grad_qkv + w, 3 * w);
  store_token(tiles.a, heads, grad_value, grad_qkv + 2 * w, 3 * w);
}

}  // namespace stagecoach::cuda
