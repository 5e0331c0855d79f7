/// @file
/// Softmax and its logarithm over rows [N, C].

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <int kThreads, bool kLogarithm, class T>
__global__ void softmax_kernel(int rows, int classes, const T* x, T* y) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const long long start = static_cast<long long>(row) * classes;
  const LogSoftmax<T> log_softmax = log_softmax_of<kThreads>(reduction, thread, x + start, classes);
  for (int c = thread; c < classes; c += kThreads) {
    const T logarithm = log_softmax(x[start + c]);
    y[start + c] = kLogarithm ? logarithm : exp(logarithm);
  }
}

template <int kThreads, bool kLogarithm, class T>
__global__ void softmax_grad_kernel(int rows, int classes, const T* grad_y, const T* y, T* grad_x) {
  using Reduction = RowReduction<T, kThreads>;
  STAGECOACH_SHARED(Reduction, reduction);
  const auto [row, thread] = RowThread<kThreads>();
  if (row >= rows) {
    return;
  }
  const long long start = static_cast<long long>(row) * classes;
  T sum = 0;
  for (int c = thread; c < classes; c += kThreads) {
    sum += kLogarithm ? grad_y[start + c] : grad_y[start + c] * y[start + c];
  }
  sum = reduce_row<kThreads>(reduction, sum, Sum{});
  for (int c = thread; c < classes; c += kThreads) {
    const T grad = grad_y[start + c];
    const T value = y[start + c];
    grad_x[start + c] = kLogarithm ? grad - exp(value) * sum : value * (grad - sum);
  }
}

namespace {

template <bool kLogarithm>
void softmax(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), kLogarithm ? "log_softmax" : "softmax", [&]<class T>() {
    const int rows = to_int(x.size(0));
    const int classes = to_int(x.size(1));
    with_threads_for(rows, classes, [&]<int kThreads>(unsigned blocks) {
      launch(softmax_kernel<kThreads, kLogarithm, T>, blocks, kRowBlockThreads, 0, compute_stream(x.device()), rows,
             classes, x.data<T>(), y.mutable_data<T>());
    });
  });
}

template <bool kLogarithm>
void softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
  dispatch_floating(y.dtype(), kLogarithm ? "log_softmax_grad" : "softmax_grad", [&]<class T>() {
    const int rows = to_int(y.size(0));
    const int classes = to_int(y.size(1));
    with_threads_for(rows, classes, [&]<int kThreads>(unsigned blocks) {
      launch(softmax_grad_kernel<kThreads, kLogarithm, T>, blocks, kRowBlockThreads, 0, compute_stream(y.device()),
             rows, classes, grad_y.data<T>(), y.data<T>(), grad_x.mutable_data<T>());
    });
  });
}

}  // namespace

void add_softmax(Kernels& table) {
  table.softmax = softmax<false>;
  table.softmax_grad = softmax_grad<false>;
  table.log_softmax = softmax<true>;
  table.log_softmax_grad = softmax_grad<true>;
}

}  // namespace stagecoach::cuda
