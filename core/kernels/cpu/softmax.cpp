#include <cmath>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/rows.h"

namespace stagecoach {

void CpuKernels::softmax(const Tensor& x, Tensor& y) const {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    cpu::for_each_row(x, [=](std::int64_t start, std::int64_t width) {
      const cpu::LogSoftmax<T> log_softmax_of(in + start, width);
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = std::exp(log_softmax_of(in[c]));
      }
    });
  });
}

void CpuKernels::softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const {
  dispatch_floating(y.dtype(), "softmax_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* value = y.data<T>();       // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    cpu::for_each_row(y, [=](std::int64_t start, std::int64_t width) {
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

void CpuKernels::log_softmax(const Tensor& x, Tensor& y) const {
  dispatch_floating(x.dtype(), "log_softmax", [&]<class T>() {
    const T* in = x.data<T>();     // [N, C]
    T* out = y.mutable_data<T>();  // [N, C]
    cpu::for_each_row(x, [=](std::int64_t start, std::int64_t width) {
      const cpu::LogSoftmax<T> log_softmax_of(in + start, width);
      for (std::int64_t c = start; c < start + width; ++c) {
        out[c] = log_softmax_of(in[c]);
      }
    });
  });
}

void CpuKernels::log_softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const {
  dispatch_floating(y.dtype(), "log_softmax_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();   // [N, C]
    const T* value = y.data<T>();       // [N, C]
    T* out = grad_x.mutable_data<T>();  // [N, C]
    cpu::for_each_row(y, [=](std::int64_t start, std::int64_t width) {
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

}  // namespace stagecoach
