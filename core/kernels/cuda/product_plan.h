#pragma once
/// @file
/// How a matrix product is cut up. It follows from the extents alone, never from the GPU: so do the results.

#include <algorithm>
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

/// As many blocks as large GPUs have processors (an H200 has 132); a constant, so that all GPUs compute alike.
inline constexpr int kEnoughBlocks = 128;
inline constexpr int kTile = 16;           ///< of the tiled kernel, in both directions
inline constexpr int kSmallestSlice = 64;  ///< below, adding up the slices costs more than they save
inline constexpr int kSliceUnit = 32;      ///< slices begin where every kernel's tiles do
inline constexpr int kMostSlices = 512;
/// Of an operand: with more, a place in memory and kOutside (matrix_product.cuh) would not be told apart.
inline constexpr std::int64_t kMostElements = (1 << 30) - (1 << 16);

/// The register-tiled kernel has five tiles: low ones for results of few rows, and the largest square that still gives
/// enough blocks.
inline BlockTile register_tile(const ProductExtents& e) {
  if (e.rows <= 16) {
    return {e.rows <= 8 ? 8 : 16, 128};
  }
  if (BlockTile{128, 128}.blocks(e) >= kEnoughBlocks) {
    return {128, 128};
  }
  return BlockTile{64, 64}.blocks(e) >= kEnoughBlocks ? BlockTile{64, 64} : BlockTile{32, 32};
}

/// The tensor-core kernel has two tiles of the same size: one for results of few rows.
inline BlockTile tensor_core_tile(const ProductExtents& e) {
  return e.rows <= 64 ? BlockTile{64, 256} : BlockTile{128, 128};
}

inline BlockTile block_tile(ProductKernel kernel, const ProductExtents& e) {
  switch (kernel) {
    case ProductKernel::plain:
      return {1, 256};
    case ProductKernel::tiled:
      return {kTile, kTile};
    case ProductKernel::registers:
      return register_tile(e);
    case ProductKernel::tensor_cores:
      return tensor_core_tile(e);
  }
  return {1, 1};
}

/// `kernel` in one of its tiles, with as many slices as give enough blocks.
inline ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e) {
  const int blocks = std::max(tile.blocks(e), 1);
  const int most = std::clamp(e.depth / kSmallestSlice, 1, kMostSlices);
  // A processor hides the wait for memory behind other blocks: two of the tensor cores' large ones fit, and more of the
  // low tiles' small ones.
  const bool low = kernel == ProductKernel::registers && tile.rows <= 16;
  const int enough = kEnoughBlocks * (kernel == ProductKernel::tensor_cores ? 2 : low ? 4 : 1);
  const bool whole = kernel == ProductKernel::plain;  // the plain kernel stays plain
  const int wanted = whole ? 1 : std::clamp(enough / blocks, 1, most);
  const int depth =
      std::max(kSliceUnit, (e.depth / wanted + (e.depth % wanted != 0) + kSliceUnit - 1) / kSliceUnit * kSliceUnit);
  return {kernel, tile, std::max((e.depth + depth - 1) / depth, 1), depth};
}
inline ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e) {
  return plan_product(kernel, block_tile(kernel, e), e);
}

}  // namespace stagecoach::cuda
