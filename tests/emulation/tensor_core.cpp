#include "core/cuda/tensor_core.h"

namespace stagecoach::cuda {
namespace {

/// What a thread holds of the factors.
struct Held {
  std::uint32_t a[4];
  std::uint32_t b[2];
};

/// Element k of a row of a factor.
float element_of(const StridedFactor& factor, int row, int k) {
  const std::ptrdiff_t at = k / kCoreK * factor.along_k + row / kCoreRows * factor.along_rows;
  return seen_as_tf32(std::bit_cast<std::uint32_t>(factor.first[at + row % kCoreRows * kCoreK + k % kCoreK]));
}

/// Adds the products for the sums of this thread, of which there are 64 for 128 columns and so on.
template <std::size_t kSums>
void add_product(float (&sums)[kSums], const StridedFactor& a, const StridedFactor& b) {
  const int lane = emulation::lane();
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
  for (int i = 0; i < static_cast<int>(kSums); ++i) {
    const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    for (int depth = 0; depth < 8; ++depth) {
      sums[i] += element_of(a, row, depth) * element_of(b, column, depth);
    }
  }
}

float element_of_a(const Held* warp, int row, int depth) {
  const Held& thread = warp[row % 8 * 4 + depth % 4];
  return seen_as_tf32(thread.a[row / 8 + depth / 4 * 2]);
}

float element_of_b(const Held* warp, int depth, int column) {
  return seen_as_tf32(warp[column * 4 + depth % 4].b[depth / 4]);
}

}  // namespace

void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                   std::source_location where) {
  const Held mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const Held* warp = static_cast<const Held*>(emulation::exchange(&mine, sizeof(mine), where));
  const int lane = emulation::lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8;
    const int column = lane % 4 * 2 + i % 2;
    for (int depth = 0; depth < 8; ++depth) {
      sums[i] += element_of_a(warp, row, depth) * element_of_b(warp, depth, column);
    }
  }
}

void start_product(float (&sums)[32], StridedFactor a, StridedFactor b) { add_product(sums, a, b); }
void start_product(float (&sums)[64], StridedFactor a, StridedFactor b) { add_product(sums, a, b); }
void start_product(float (&sums)[96], StridedFactor a, StridedFactor b) { add_product(sums, a, b); }
void start_product(float (&sums)[112], StridedFactor a, StridedFactor b) { add_product(sums, a, b); }
void start_product(float (&sums)[128], StridedFactor a, StridedFactor b) { add_product(sums, a, b); }

}  // namespace stagecoach::cuda
