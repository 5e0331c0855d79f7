#include <cmath>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/elementwise.h"

namespace stagecoach {

void CpuKernels::sgd_step(const Tensor& grad, const SgdSettings& settings, Tensor& parameter, Tensor& velocity) const {
  dispatch_floating(parameter.dtype(), "sgd_step", [&]<class T>() {
    const T* g = grad.data<T>();
    T* p = parameter.mutable_data<T>();
    const auto rate = static_cast<T>(settings.learning_rate);
    const auto decay = static_cast<T>(settings.weight_decay);
    if (settings.momentum == 0) {
      cpu::for_each_element(parameter.device(), parameter.numel(),
                            [=](std::int64_t i) { p[i] -= rate * (g[i] + decay * p[i]); });
      return;
    }
    T* v = velocity.mutable_data<T>();
    const auto momentum = static_cast<T>(settings.momentum);
    cpu::for_each_element(parameter.device(), parameter.numel(), [=](std::int64_t i) {
      v[i] = momentum * v[i] + (g[i] + decay * p[i]);
      p[i] -= rate * v[i];
    });
  });
}

void CpuKernels::adam_step(const Tensor& grad, const AdamSettings& settings, std::int64_t step, Tensor& parameter,
                           Tensor& first_moment, Tensor& second_moment) const {
  dispatch_floating(parameter.dtype(), "adam_step", [&]<class T>() {
    const T* g = grad.data<T>();
    T* p = parameter.mutable_data<T>();
    T* m = first_moment.mutable_data<T>();
    T* v = second_moment.mutable_data<T>();
    const auto beta1 = static_cast<T>(settings.beta1);
    const auto beta2 = static_cast<T>(settings.beta2);
    const auto decay = static_cast<T>(settings.weight_decay);
    const auto epsilon = static_cast<T>(settings.epsilon);
    // The bias corrections: m / (1 - beta1^t) and sqrt(v / (1 - beta2^t)).
    const auto rate = static_cast<T>(settings.learning_rate / (1 - std::pow(settings.beta1, step)));
    const auto root = static_cast<T>(std::sqrt(1 - std::pow(settings.beta2, step)));
    cpu::for_each_element(parameter.device(), parameter.numel(), [=](std::int64_t i) {
      const T d = g[i] + decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * d;
      v[i] = beta2 * v[i] + (1 - beta2) * d * d;
      p[i] -= rate * m[i] / (std::sqrt(v[i]) / root + epsilon);
    });
  });
}

}  // namespace stagecoach
