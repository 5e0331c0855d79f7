#include "core/kernels/cpu/matmul.h"

#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace {

void matmul(const Tensor& a, const Tensor& b, const Transposed& transposed, Tensor& out) {
  dispatch_floating(a.dtype(), "matmul", [&]<class T>() {
    const MatmulShape s{out.size(0), out.size(1), out.size(2), a.size(transposed.a ? 1 : 2), transposed};
    const T* lefts = a.data<T>();
    const T* rights = b.data<T>();
    T* results = out.mutable_data<T>();
    parallel_for(a.device(), s.batches, [&](std::int64_t batch) {
      const SingleThreaded inside;
      const T* right = rights + batch * s.k * s.n;
      const Workspace<T> transposed_right(a.device(), transposed.b ? s.k * s.n : 0);  // [K, N]
      if (transposed.b) {
        transpose_block(s.n, s.k, right, s.k, transposed_right.data(), s.n);
        right = transposed_right.data();
      }
      product(a.device(), s.m, s.k, s.n, lefts + batch * s.m * s.k, transposed.a ? 1 : s.k, transposed.a ? s.m : 1,
              right, results + batch * s.m * s.n);
    });
  });
}

}  // namespace

void add_matmul(Tables& tables) { tables.add<&Kernels::matmul>("matmul", matmul); }

}  // namespace stagecoach::cpu
