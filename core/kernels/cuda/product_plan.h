#pragma once
/// @file
/// Determines how a matrix product is divided among blocks. The division, and therefore the results in float32, depend
/// only on the extents, never on the GPU. In TF32 they depend on the kind of tensor core.

#include <cstdint>

namespace stagecoach::cuda {

/// The kernels of matrix_product.cuh, in teaching order.
enum class ProductKernel { plain, tiled, registers, tensor_cores, warpgroups };

/// Whether a kernel rounds its factors to TF32.
constexpr bool on_tensor_cores(ProductKernel kernel) { return kernel >= ProductKernel::tensor_cores; }

/// out [M, N] = a [M, K] b [K, N]
struct ProductExtents {
  int m;
  int n;
  int k;
  /// Returns the length of the result's rows in the workspace: even, so that pairs are aligned.
  constexpr int pitch() const { return n + n % 2; }
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
  /// Split-K: parts of K that are summed separately and then added in order. Without it, a product with few sums of
  /// many terms would leave most of the GPU idle.
  int splits = 1;
  int k_per_split = 0;  ///< the last split may be shorter
  /// Returns the number of workspace elements for the results of the splits; 0 for one split.
  std::int64_t workspace_elements(const ProductExtents& e) const {
    return splits == 1 ? 0 : std::int64_t{1} * splits * e.m * e.pitch();
  }
};

/// As many blocks as large GPUs have SMs (an H200 has 132); a constant, so that all GPUs compute identically.
inline constexpr int kTargetBlocks = 128;
inline constexpr int kTile = 16;       ///< tile of the tiled kernel, in both dimensions
inline constexpr int kLowM = 16;       ///< rows of the register-tiled kernel's low tile
inline constexpr int kMaxKernel = 15;  ///< maximum taps of a convolution's window per dimension
/// Maximum elements of an operand: with more, a memory offset could not be distinguished from kOutside
/// (matrix_product.cuh).
inline constexpr std::int64_t kMaxElements = (1 << 30) - (1 << 16);

/// Returns the tile of `kernel`. Those from the register-tiled one on have two: a low one for results with few
/// rows.
BlockTile block_tile(ProductKernel kernel, const ProductExtents& e);

/// Returns a plan for `kernel` with the given tile, with enough splits to give enough blocks.
ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e);
ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e);

}  // namespace stagecoach::cuda
