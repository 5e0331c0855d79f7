#pragma once
/// @file
/// How a matrix product is cut up. It follows from the extents alone, never from the GPU: so do the results.

#include <cstdint>

namespace stagecoach::cuda {

/// The kernels of matrix_product.cuh, in teaching order.
enum class ProductKernel { plain, tiled, registers, tensor_cores };

/// out [rows, columns] = a [rows, depth] b [depth, columns]
struct ProductExtents {
  int rows;
  int columns;
  int depth;
};

/// Rows and columns of the result that one block makes.
struct BlockTile {
  int rows;
  int columns;
  int blocks(const ProductExtents& e) const {
    return ((e.rows + rows - 1) / rows) * ((e.columns + columns - 1) / columns);
  }
};

struct ProductPlan {
  ProductKernel kernel;
  BlockTile tile;
  /// Parts of the depth that are summed apart and then added in order. Few, deep results would else leave most of the
  /// GPU without work.
  int slices = 1;
  int depth_of_slice = 0;  ///< of each but perhaps the last
  /// Elements of the buffer for the slices' results; none for one slice.
  std::int64_t partial_elements(const ProductExtents& e) const {
    return slices == 1 ? 0 : std::int64_t{1} * slices * e.rows * e.columns;
  }
};

/// As many blocks as large GPUs have SMs (an H200 has 132); a constant, so that all GPUs compute alike.
inline constexpr int kEnoughBlocks = 128;
inline constexpr int kTile = 16;       ///< of the tiled kernel, in both directions
inline constexpr int kLowRows = 16;    ///< of the register-tiled kernel's low tile
inline constexpr int kMaxKernel = 15;  ///< taps of a convolution's window in each direction
/// Of an operand: with more, an offset in memory and kOutside (matrix_product.cuh) would not be told apart.
inline constexpr std::int64_t kMaxElements = (1 << 30) - (1 << 16);

/// The tile of `kernel`. Those in registers and on tensor cores have two: a low one for results of few rows.
BlockTile block_tile(ProductKernel kernel, const ProductExtents& e);

/// `kernel` in one of its tiles, with as many slices as give enough blocks.
ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e);
ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e);

}  // namespace stagecoach::cuda
