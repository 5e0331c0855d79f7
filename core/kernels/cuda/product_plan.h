#pragma once
/// @file
/// How a matrix product is divided over blocks. That depends on the extents alone, never on the GPU, and so do the
/// results.

#include <cstdint>

namespace stagecoach::cuda {

/// The kernels of matrix_product.cuh, in teaching order.
enum class ProductKernel { plain, tiled, registers, tensor_cores };

/// out [M, N] = a [M, K] b [K, N]
struct ProductExtents {
  int m;
  int n;
  int k;
};

/// The part of the result that one block computes.
struct BlockTile {
  int m;
  int n;
  int blocks(const ProductExtents& e) const { return ((e.m + m - 1) / m) * ((e.n + n - 1) / n); }
};

struct ProductPlan {
  ProductKernel kernel;
  BlockTile tile;
  /// Split-K: parts of K that are summed apart and then added in order. Without it few sums of many terms would leave
  /// most of the GPU without work.
  int splits = 1;
  int k_per_split = 0;  ///< of each but perhaps the last
  /// Elements of the workspace for the results of the splits; none for one split.
  std::int64_t workspace_elements(const ProductExtents& e) const {
    return splits == 1 ? 0 : std::int64_t{1} * splits * e.m * e.n;
  }
};

/// As many blocks as large GPUs have SMs (an H200 has 132); a constant, so that all GPUs compute alike.
inline constexpr int kTargetBlocks = 128;
inline constexpr int kTile = 16;       ///< of the tiled kernel, in both directions
inline constexpr int kLowM = 16;       ///< of the register-tiled kernel's low tile
inline constexpr int kMaxKernel = 15;  ///< taps of a convolution's window in each direction
/// Of an operand: with more, an offset in memory and kOutside (matrix_product.cuh) could not be told apart.
inline constexpr std::int64_t kMaxElements = (1 << 30) - (1 << 16);

/// The tile of `kernel`. Those in registers and on tensor cores have two: a low one for results of few rows.
BlockTile block_tile(ProductKernel kernel, const ProductExtents& e);

/// `kernel` in one of its tiles, with as many splits as give enough blocks.
ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e);
ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e);

}  // namespace stagecoach::cuda
