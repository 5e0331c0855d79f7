#include <cmath>

#include "core/kernels/cpu/rows.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

template <bool kLogarithm>
void softmax(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), kLogarithm ? "log_softmax" : "softmax", [&]<class T>() {
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    for_each_row(x, [=](std::int64_t start, std::int64_t width) {
      const LogSoftmax<T> log_softmax_of(in + start, width);
      for (std::int64_t c = start; c < start + width; ++c) {
        const T logarithm = log_softmax_of(in[c]);
        out[c] = kLogarithm ? logarithm : std::exp(logarithm);
      }
    });
  });
}

template <bool kLogarithm>
void softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
  dispatch_floating(y.dtype(), kLogarithm ? "log_softmax_grad" : "softmax_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* value = y.data<T>();       // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    for_each_row(y, [=](std::int64_t start, std::int64_t width) {
      T sum = 0;
      for (std::int64_t c = start; c < start + width; ++c) {
        sum += kLogarithm ? grad[c] : grad[c] * value[c];
      }
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = kLogarithm ? grad[c] - std::exp(value[c]) * sum : value[c] * (grad[c] - sum);
      }
    });
  });
}

}  // namespace

void add_softmax(Tables& tables) {
  tables.add<&Kernels::softmax>("softmax", softmax<false>);
  tables.add<&Kernels::softmax_grad>("softmax_grad", softmax_grad<false>);
  tables.add<&Kernels::log_softmax>("log_softmax", softmax<true>);
  tables.add<&Kernels::log_softmax_grad>("log_softmax_grad", softmax_grad<true>);
}

}  // namespace stagecoach::cpu
