#include <cmath>

#include "core/kernels/cpu/rows.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

void softmax(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    for_each_row(x, [=](std::int64_t start, std::int64_t width) {
      const LogSoftmax<T> log_softmax_of(in + start, width);
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = std::exp(log_softmax_of(in[c]));
      }
    });
  });
}

void softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
  dispatch_floating(y.dtype(), "softmax_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* value = y.data<T>();       // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    for_each_row(y, [=](std::int64_t start, std::int64_t width) {
      T dot = 0;
      for (std::int64_t c = start; c < start + width; ++c) {
        dot += grad[c] * value[c];
      }
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = value[c] * (grad[c] - dot);
      }
    });
  });
}

void log_softmax(const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "log_softmax", [&]<class T>() {
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    for_each_row(x, [=](std::int64_t start, std::int64_t width) {
      const LogSoftmax<T> log_softmax_of(in + start, width);
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = log_softmax_of(in[c]);
      }
    });
  });
}

void log_softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) {
  dispatch_floating(y.dtype(), "log_softmax_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* value = y.data<T>();       // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    for_each_row(y, [=](std::int64_t start, std::int64_t width) {
      T sum = 0;
      for (std::int64_t c = start; c < start + width; ++c) {
        sum += grad[c];
      }
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = grad[c] - std::exp(value[c]) * sum;
      }
    });
  });
}

}  // namespace

void add_softmax(Tables& tables) {
  tables.add<&Kernels::softmax>("softmax", softmax);
  tables.add<&Kernels::softmax_grad>("softmax_grad", softmax_grad);
  tables.add<&Kernels::log_softmax>("log_softmax", log_softmax);
  tables.add<&Kernels::log_softmax_grad>("log_softmax_grad", log_softmax_grad);
}

}  // namespace stagecoach::cpu
