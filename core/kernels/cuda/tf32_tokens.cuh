#pragma once
/// @file
/// The tokens of a head as factors of products on tensor cores, in TF32 (core/cuda/tensor_core.h): those that a warp
/// owns, tiles of others in shared memory, and the products of the two.
///
/// What the instruction returns, scores of rows `group` and `group + 8` in columns 2 place and 2 place + 1, is not laid
/// out as the factor of the next product, which has columns `place` and `place + 4`. But the terms of a product may be
/// added in any order: a thread takes its columns as they are, and loads the other factor's rows 2 place and 2 place +
/// 1 beside them. Likewise its features of a chunk of 16 are 4 place … 4 place + 3: one load of 16 bytes.

#include "core/cuda/device_code.h"
#include "core/cuda/tensor_core.h"
#include "core/kernels/cuda/fused_attention.cuh"
#include "core/kernels/cuda/vectorized.cuh"

namespace stagecoach::cuda {

inline constexpr int kWarpTokens = 16;  ///< tokens that a warp owns
inline constexpr int kTensorCoreThreads = kTokenTile / kWarpTokens * 32;

using Four = Vector<float, 4>;

__device__ inline int lane_group() { return static_cast<int>(threadIdx.x % 32 / 4); }
__device__ inline int lane_place() { return static_cast<int>(threadIdx.x % 4); }
/// Returns the first of this thread's two rows of a tile; the other one is 8 below.
__device__ inline int lane_row() { return static_cast<int>(threadIdx.x / 32) * kWarpTokens + lane_group(); }

/// Tokens [N, T, …] in memory that begin `row` elements apart, or one part of each.
template <class T>
struct Tokens {
  T* data;
  int row;
};

/// Returns features `feature` … `feature + 3` of a token, from features on at `from`; those that do not exist are 0.
template <int kVector>
__device__ Four load_four(const Heads& heads, const float* from, bool exists, int feature) {
  Four four{};
  if constexpr (kVector == 4) {
    four = predicated_load(exists && feature < heads.width, reinterpret_cast<const Four*>(from), four);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      four.at[i] = predicated_load(exists && feature + i < heads.width, from + i);
    }
  }
  return four;
}

/// The inverse of load_four, to tokens[offset] and the following ones.
template <int kVector>
__device__ void store_four(const Heads& heads, const Four& four, float* tokens, long long offset, bool exists,
                           int feature) {
  if constexpr (kVector == 4) {
    if (exists && feature < heads.width) {
      reinterpret_cast<Four*>(tokens)[offset >> 2] = four;  // shows the compiler that it is aligned: a single store
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (exists && feature + i < heads.width) {
        tokens[offset + i] = four.at[i];
      }
    }
  }
}

/// A tile of tokens in shared memory, rounded to TF32. The distances between rows avoid bank conflicts of both kinds of
/// loads: 16 floats (modulo the 32 banks) from an even row to the next one, and 8 from a pair of rows to the next one.
template <int kWidth>
class alignas(16) Tf32Tile {
 public:
  static constexpr int kFeatures = kWidth / 8 < 4 ? kWidth / 8 : 4;  // adjacent ones that a thread takes of a token
  /// What a thread moves from memory to the tile.
  struct Part {
    Four at[kWidth / 8];
  };

  /// Loads this thread's part of the tile that begins at token `begin`.
  template <int kVector>
  __device__ static Part fetch(const Heads& heads, Tokens<const float> tokens, int begin) {
    Part part;
    const int first = begin + first_token();
    const float* from = tokens.data + heads.start(tokens.row) + static_cast<long long>(first) * tokens.row + feature();
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      part.at[i] = load_four<kVector>(heads, from, first + i * kTokensAtOnce < heads.tokens, feature());
      from += kTokensAtOnce * tokens.row;
    }
    return part;
  }
  __device__ void put(const Part& part) {
    float* to = at_ + offset(first_token()) + feature();
#pragma unroll
    for (int i = 0; i < kWidth / 8; ++i) {
      Four rounded;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        rounded.at[j] = __uint_as_float(round_to_tf32(part.at[i].at[j]));
      }
      *reinterpret_cast<Four*>(to + i * kTokensAtOnce / 8 * kEightTokens) = rounded;
    }
  }
  /// Returns kCount features from `feature` on, of token `token` of the eight that begin at `first`.
  template <int kCount>
  __device__ Vector<float, kCount> get(int first, int token, int feature) const {
    return *reinterpret_cast<const Vector<float, kCount>*>(at_ + offset(token) + feature + first / 8 * kEightTokens);
  }

 private:
  static constexpr int kPitch = kWidth % 32 == 16 ? kWidth : kWidth + 16;
  static constexpr int kEightTokens = 8 * kPitch + 32;
  static constexpr int kFours = kWidth / 4;
  static constexpr int kTokensAtOnce = kTensorCoreThreads / kFours;
  __device__ static int first_token() { return static_cast<int>(threadIdx.x / kFours); }
  __device__ static int feature() { return static_cast<int>(threadIdx.x % kFours * 4); }
  __device__ static int offset(int token) { return token * kPitch + (token >> 1) * 8; }

  float at_[kTokenTile / 8 * kEightTokens];
};

/// This warp's tokens of the block's tile as the first factor of multiply_features.
template <int kWidth>
struct WarpTokens {
  std::uint32_t at[kWidth / 8][4];

  template <int kVector>
  __device__ static WarpTokens load(const Heads& heads, Tokens<const float> tokens) {
    WarpTokens loaded;
    const int token = heads.first_token() + lane_row();
    const float* from = tokens.data + heads.start(tokens.row) + static_cast<long long>(token) * tokens.row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int chunk = 0; chunk < kWidth / 16; ++chunk) {
        const int feature = 16 * chunk + 4 * lane_place();
        const Four four =
            load_four<kVector>(heads, from + 8 * half * tokens.row + feature, token + 8 * half < heads.tokens, feature);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          loaded.at[2 * chunk + i / 2][half + i % 2 * 2] = round_to_tf32(four.at[i]);
        }
      }
    }
    return loaded;
  }
};

/// scores = a b^T, for the warp's tokens a and the 8 kTiles tokens of `b` from `first` on.
template <int kWidth, int kTiles>
__device__ void multiply_features(const WarpTokens<kWidth>& a, const Tf32Tile<kWidth>& b, int first,
                                  float (&scores)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[tile][i] = 0;
    }
#pragma unroll
    for (int chunk = 0; chunk < kWidth / 16; ++chunk) {
      const Four four = b.template get<4>(first + 8 * tile, lane_group(), 16 * chunk + 4 * lane_place());
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_tf32(scores[tile], a.at[2 * chunk + i],
                      {__float_as_uint(four.at[2 * i]), __float_as_uint(four.at[2 * i + 1])});
      }
    }
  }
}

/// Sums [16, kWidth] of a warp: row `group` (+ 8) has this thread's features of each chunk of 8 kFeatures, 2 kFeatures
/// adjacent ones.
template <int kWidth>
class WarpSums {
 public:
  /// Adds weights b, for weights with the 8 kTiles tokens of `b` from `first` on.
  template <int kTiles>
  __device__ void add(const float (&weights)[kTiles][4], const Tf32Tile<kWidth>& b, int first) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float(&w)[4] = weights[tile];
      const std::uint32_t a[4] = {round_to_tf32(w[0]), round_to_tf32(w[2]), round_to_tf32(w[1]), round_to_tf32(w[3])};
#pragma unroll
      for (int feature = 0; feature < kWidth; feature += 8 * kFeatures) {
        const auto even =
            b.template get<kFeatures>(first + 8 * tile, 2 * lane_place(), feature + kFeatures * lane_group());
        const auto odd =
            b.template get<kFeatures>(first + 8 * tile, 2 * lane_place() + 1, feature + kFeatures * lane_group());
#pragma unroll
        for (int i = 0; i < kFeatures; ++i) {
          multiply_tf32(at_[feature / 8 + i], a, {__float_as_uint(even.at[i]), __float_as_uint(odd.at[i])});
        }
      }
    }
  }
  /// Multiplies the thread's two rows by a factor each.
  __device__ void scale(const float (&factors)[2]) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        at_[n][i] *= factors[i / 2];
      }
    }
  }
  /// Stores them as the block's tokens.
  template <int kVector>
  __device__ void store(const Heads& heads, Tokens<float> tokens) const {
    const int token = heads.first_token() + lane_row();
    const long long first = heads.start(tokens.row) + static_cast<long long>(token) * tokens.row;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; n += 2) {
        const int chunk = n / kFeatures * kFeatures;
        const int begin = n % kFeatures * 2;  // of the four among the thread's 2 kFeatures features of the chunk
        Four four;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          four.at[i] = at_[chunk + (begin + i) % kFeatures][2 * half + (begin + i) / kFeatures];
        }
        const int feature = 8 * chunk + 2 * kFeatures * lane_place() + begin;
        store_four<kVector>(heads, four, tokens.data, first + 8 * half * tokens.row + feature,
                            token + 8 * half < heads.tokens, feature);
      }
    }
  }

 private:
  static constexpr int kFeatures = Tf32Tile<kWidth>::kFeatures;
  float at_[kWidth / 8][4] = {};
};

/// Tiles of two sequences of tokens, and what a thread moves from memory to them.
template <int kWidth>
struct TwoTf32Tiles {
  Tf32Tile<kWidth> a;
  Tf32Tile<kWidth> b;
};
template <int kWidth>
struct TwoParts {
  typename Tf32Tile<kWidth>::Part a;
  typename Tf32Tile<kWidth>::Part b;
};

template <int kWidth, int kVector>
__device__ TwoParts<kWidth> fetch_parts(const Heads& heads, Tokens<const float> a, Tokens<const float> b, int begin) {
  using Tile = Tf32Tile<kWidth>;
  return {Tile::template fetch<kVector>(heads, a, begin), Tile::template fetch<kVector>(heads, b, begin)};
}

/// Calls body(begin) for each tile of two sequences of tokens that `range` has a part of, when it is in `tiles`;
/// `parts` are those of the first. All threads of the block must call it. If the compiler knows that there is one tile
/// only, what a next round would need takes no registers.
template <int kVector, bool kOneTile, int kWidth, class Body>
__device__ void for_each_tile(TwoTf32Tiles<kWidth>& tiles, const Heads& heads, const TokenRange& range,
                              Tokens<const float> a, Tokens<const float> b, TwoParts<kWidth> parts, const Body& body) {
  for (int begin = kOneTile ? 0 : range.begin; begin < (kOneTile ? 1 : range.end); begin += kTokenTile) {
    __syncthreads();  // all threads have read the tiles
    tiles.a.put(parts.a);
    tiles.b.put(parts.b);
    __syncthreads();  // the tiles are complete
    body(begin);
    if constexpr (!kOneTile) {
      const int next = begin + kTokenTile;
      parts = fetch_parts<kWidth, kVector>(heads, a, b, next < range.end ? next : heads.tokens);  // or nothing
    }
  }
}

}  // namespace stagecoach::cuda
