#include "core/kernels/cuda/product_plan.h"

#include <algorithm>

#include "core/cuda_backend.h"
#include "core/kernels/cuda/products.h"

namespace stagecoach::cuda {
namespace {

constexpr int kMinSplit = 64;   // with less, adding the splits costs more than they save
constexpr int kSplitUnit = 32;  // splits begin at a multiple of every kernel's tile
constexpr int kMaxSplits = 512;

/// Returns the share of the GPU that is busy on average, where `at_once` blocks run at a time: in the last of these
/// waves there may be few.
double busy_share(int blocks, int at_once) {
  const int waves = (blocks + at_once - 1) / at_once;
  return static_cast<double>(blocks) / (static_cast<double>(waves) * at_once);
}

/// Returns a number of splits from `fewest` on that leaves little of the GPU idle in the last wave. Each split costs a
/// pass over the result, so it must be long: of `k` terms it gets 512 at least.
int splits_for_whole_waves(int blocks, int fewest, int k, int at_once) {
  constexpr double kBusy = 0.9;
  constexpr int kMore = 6;
  constexpr int kLong = 512;
  int best = fewest;
  for (int splits = fewest; splits <= std::min(fewest + kMore, k / kLong); ++splits) {
    if (busy_share(blocks * best, at_once) < std::min(kBusy, busy_share(blocks * splits, at_once))) {
      best = splits;
    }
  }
  return best;
}

}  // namespace

BlockTile block_tile(ProductKernel kernel, const ProductExtents& e) {
  switch (kernel) {
    case ProductKernel::plain:
      return {1, 256};
    case ProductKernel::tiled:
      return {kTile, kTile};
    case ProductKernel::registers:
      return e.m <= kLowM ? BlockTile{kLowM, 128} : BlockTile{64, 64};
    case ProductKernel::tensor_cores:
      return e.m <= 64 ? BlockTile{64, 256} : BlockTile{128, 128};
    case ProductKernel::warpgroups:
      return {e.m <= 64 ? 64 : 128, e.n <= 64 ? 64 : e.m <= 64 && e.n > 256 ? 256 : 128};
  }
  return {1, 1};
}

ProductPlan plan_product(ProductKernel kernel, const BlockTile& tile, const ProductExtents& e) {
  const int blocks = std::max(tile.blocks(e), 1);
  const int max_splits = std::clamp(e.k / kMinSplit, 1, kMaxSplits);
  // An SM hides memory latency by running other blocks: it holds two large tensor-core blocks, and more of the small
  // blocks of the low tile.
  const bool low = kernel == ProductKernel::registers && tile.m == kLowM;
  const int enough = kTargetBlocks * (on_tensor_cores(kernel) ? 2 : low ? 4 : 1);
  const bool whole = kernel == ProductKernel::plain;  // the plain kernel does not split K
  int splits = whole ? 1 : std::clamp(enough / blocks, 1, max_splits);
  if (on_tensor_cores(kernel)) {
    splits = splits_for_whole_waves(blocks, splits, e.k, enough);
  }
  const int k_per_split =
      std::max(kSplitUnit, (e.k / splits + (e.k % splits != 0) + kSplitUnit - 1) / kSplitUnit * kSplitUnit);
  return {kernel, tile, std::max((e.k + k_per_split - 1) / k_per_split, 1), k_per_split};
}

ProductPlan plan_product(ProductKernel kernel, const ProductExtents& e) {
  return plan_product(kernel, block_tile(kernel, e), e);
}

ProductPlan fastest_plan(const ProductExtents& e, DType dtype, Device device) {
  if (dtype == DType::float64) {  // float64 is for tests
    return plan_product(ProductKernel::tiled, e);
  }
  if (e.m <= kLowM || !uses_tf32(device)) {
    return plan_product(ProductKernel::registers, e);
  }
  return plan_product(has_warpgroups(device) ? ProductKernel::warpgroups : ProductKernel::tensor_cores, e);
}

}  // namespace stagecoach::cuda
