#include "core/kernels/cpu/matmul.h"

#include "core/kernels/cpu/matrix_product.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/transpose.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/groups.h"
#include "core/parallel_for.h"

namespace stagecoach::cpu {
namespace fast {

template <class T>
void matmul(Device device, const MatmulShape& s, const T* a, const T* b, T* out) {
  parallel_for(device, s.batches, [&](std::int64_t batch) {
    const SingleThreaded inside;
    const T* right = b + batch * s.k * s.n;
    const Workspace<T> transposed(device, s.transposed.b ? s.k * s.n : 0);  // [K, N]
    if (s.transposed.b) {
      transpose_block(s.n, s.k, right, s.k, transposed.data(), s.n);
      right = transposed.data();
    }
    product(device, s.m, s.k, s.n, a + batch * s.m * s.k, s.transposed.a ? 1 : s.k, s.transposed.a ? s.m : 1, right,
            out + batch * s.m * s.n);
  });
}

template void matmul<float>(Device, const MatmulShape&, const float*, const float*, float*);
template void matmul<double>(Device, const MatmulShape&, const double*, const double*, double*);

}  // namespace fast

namespace {

void matmul(const Tensor& a, const Tensor& b, const Transposed& transposed, Tensor& out) {
  dispatch_floating(a.dtype(), "matmul", [&]<class T>() {
    const MatmulShape shape{out.size(0), out.size(1), out.size(2), a.size(transposed.a ? 1 : 2), transposed};
    fast::matmul<T>(a.device(), shape, a.data<T>(), b.data<T>(), out.mutable_data<T>());
  });
}

}  // namespace

void add_matmul(Tables& tables) { tables.add<&Kernels::matmul>("matmul", matmul); }

}  // namespace stagecoach::cpu
