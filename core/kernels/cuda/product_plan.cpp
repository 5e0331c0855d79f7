#include "core/kernels/cuda/product_plan.h"

#include <algorithm>

#include "core/cuda_backend.h"
#include "core/kernels/cuda/products.h"

namespace stagecoach::cuda {
namespace {

constexpr int kMinSlice = 64;   // below, adding up the slices costs more than they save
constexpr int kSliceUnit = 32;  // slices begin where every kernel's tiles do
constexpr int kMaxSlices = 512;

}  // namespace

BlockTile block_tile(ProductKernel kernel, const ProductExtents& e) {
  switch (kernel) {
    case ProductKernel::plain:
      return {1, 256};
    case ProductKernel::tiled:
      return {kTile, kTile};
    case ProductKernel::registers:
      return e.rows <= kLowRows ? BlockTile{kLowRows, 128} : BlockTile{64, 64};
    case ProductKernel::tensor_cores:
      return e.rows <= 64 ? BlockTile{64, 256} : BlockTile{128, 128};
  }
  return {1, 1};
}

ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e) {
  const int blocks = std::max(tile.blocks(e), 1);
  const int max_slices = std::clamp(e.depth / kMinSlice, 1, kMaxSlices);
  // An SM hides the wait for memory behind other blocks: two of the tensor cores' large ones fit, and more of the low
  // tiles' small ones.
  const bool low = kernel == ProductKernel::registers && tile.rows == kLowRows;
  const int enough = kEnoughBlocks * (kernel == ProductKernel::tensor_cores ? 2 : low ? 4 : 1);
  const bool whole = kernel == ProductKernel::plain;  // the plain kernel stays plain
  const int wanted = whole ? 1 : std::clamp(enough / blocks, 1, max_slices);
  const int depth =
      std::max(kSliceUnit, (e.depth / wanted + (e.depth % wanted != 0) + kSliceUnit - 1) / kSliceUnit * kSliceUnit);
  return {kernel, tile, std::max((e.depth + depth - 1) / depth, 1), depth};
}

ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e) {
  return plan_product(kernel, block_tile(kernel, e), e);
}

ProductPlan fastest_plan(const ProductExtents& e, DType dtype, Device device) {
  if (dtype == DType::float64) {  // which is there for tests
    return plan_product(ProductKernel::tiled, e);
  }
  const bool tensor_cores = e.rows > kLowRows && uses_tf32(device);
  return plan_product(tensor_cores ? ProductKernel::tensor_cores : ProductKernel::registers, e);
}

}  // namespace stagecoach::cuda
