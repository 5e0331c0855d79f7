/// @file
/// Products of pairs of matrices, all in one launch.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/batched_product.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// Calls body(operand) for a factor [B, rows, columns] whose K index is its row or its column.
template <class T, class Body>
void with_operand(const Tensor& factor, bool k_is_column, const Body& body) {
  const int rows = to_int(factor.size(1));
  const int columns = to_int(factor.size(2));
  to_int(factor.size(1) * factor.size(2), kMaxElements);
  const BatchOffsets offsets{1, static_cast<long long>(rows) * columns, 0};
  if (k_is_column) {
    body(BatchedOperand<T, true>{{factor.data<T>(), rows, columns, 1}, offsets});
  } else {
    body(BatchedOperand<T, false>{{factor.data<T>(), columns, 1, columns}, offsets});
  }
}

namespace {

void matmul(const Tensor& a, const Tensor& b, const Transposed& transposed, Tensor& out) {
  dispatch_floating(a.dtype(), "matmul", [&]<class T>() {
    const int m = to_int(out.size(1));
    const int n = to_int(out.size(2));
    const ProductExtents e{m, n, to_int(a.size(transposed.a ? 1 : 2))};
    const BatchedResult<T> result{out.mutable_data<T>(), n, {1, static_cast<long long>(m) * n, 0}};
    with_operand<T>(a, !transposed.a, [&](const auto& left) {
      with_operand<T>(b, transposed.b,
                      [&](const auto& right) { multiply_batches<T>(a.device(), out.size(0), e, left, right, result); });
    });
  });
}

}  // namespace

void add_matmul(Kernels& table) { table.matmul = matmul; }

}  // namespace stagecoach::cuda
