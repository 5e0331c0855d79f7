#pragma once
/// @file
/// Products of pairs of matrices as plain loops, which read like the formula. The kernel (matmul.cpp) uses register
/// tiles (matrix_product.h).
///
/// a [B, M, K], b [B, K, N], out [B, M, N]; a transposed factor is stored as [B, K, M] or [B, N, K].

#include <cstdint>

#include "core/kernels/settings.h"

namespace stagecoach::cpu {

struct MatmulShape {
  std::int64_t batches;  ///< B
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Transposed transposed;
};

namespace plain {

/// out[m, n] = sum over k of a[m, k] b[k, n], in each batch.
template <class T>
void matmul(const MatmulShape& s, const T* a, const T* b, T* out) {
  for (std::int64_t batch = 0; batch < s.batches; ++batch, a += s.m * s.k, b += s.k * s.n) {
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        T sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k) {
          sum += a[s.transposed.a ? k * s.m + m : m * s.k + k] * b[s.transposed.b ? n * s.k + k : k * s.n + n];
        }
        *out++ = sum;
      }
    }
  }
}

}  // namespace plain
}  // namespace stagecoach::cpu
