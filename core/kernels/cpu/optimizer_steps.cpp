#include <cmath>

#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

template <class T>
void update_by_sgd(ParameterUpdate& update, const SgdSettings& settings) {
  const Device device = update.parameter.device();
  const std::int64_t count = update.parameter.numel();
  const T* g = update.grad.data<T>();
  T* p = update.parameter.mutable_data<T>();
  const auto rate = static_cast<T>(settings.learning_rate);
  const auto decay = static_cast<T>(settings.weight_decay);
  if (settings.momentum == 0) {
    for_each_element(device, count, [=](std::int64_t i) { p[i] -= rate * (g[i] + decay * p[i]); });
    return;
  }
  T* v = update.state[0].mutable_data<T>();
  const auto momentum = static_cast<T>(settings.momentum);
  for_each_element(device, count, [=](std::int64_t i) {
    v[i] = momentum * v[i] + (g[i] + decay * p[i]);
    p[i] -= rate * v[i];
  });
}

template <class T>
void update_by_adam(ParameterUpdate& update, const AdamSettings& settings) {
  const std::int32_t step = *update.count.data<std::int32_t>();
  const T* g = update.grad.data<T>();
  T* p = update.parameter.mutable_data<T>();
  T* m = update.state[0].mutable_data<T>();
  T* v = update.state[1].mutable_data<T>();
  const auto beta1 = static_cast<T>(settings.beta1);
  const auto beta2 = static_cast<T>(settings.beta2);
  // Not 1 minus the rounded beta2: in float32 that is 1.3e-5 too small, as most of its digits cancel.
  const auto rest1 = static_cast<T>(1 - settings.beta1);
  const auto rest2 = static_cast<T>(1 - settings.beta2);
  const auto decay = static_cast<T>(settings.weight_decay);
  const auto epsilon = static_cast<T>(settings.epsilon);
  // The bias corrections: m / (1 - beta1^t) and sqrt(v / (1 - beta2^t)).
  const auto rate = static_cast<T>(settings.learning_rate / (1 - std::pow(settings.beta1, step)));
  const auto root = static_cast<T>(std::sqrt(1 - std::pow(settings.beta2, step)));
  for_each_element(update.parameter.device(), update.parameter.numel(), [=](std::int64_t i) {
    const T d = g[i] + decay * p[i];
    m[i] = beta1 * m[i] + rest1 * d;
    v[i] = beta2 * v[i] + rest2 * d * d;
    p[i] -= rate * m[i] / (std::sqrt(v[i]) / root + epsilon);
  });
}

void sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) {
  for (ParameterUpdate& update : updates) {
    dispatch_floating(update.parameter.dtype(), "sgd_step", [&]<class T>() { update_by_sgd<T>(update, settings); });
  }
}

void adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) {
  for (ParameterUpdate& update : updates) {
    dispatch_floating(update.parameter.dtype(), "adam_step", [&]<class T>() { update_by_adam<T>(update, settings); });
  }
}

}  // namespace

void add_optimizer_steps(Tables& tables) {
  tables.add<&Kernels::sgd_step>("sgd_step", sgd_step);
  tables.add<&Kernels::adam_step>("adam_step", adam_step);
}

}  // namespace stagecoach::cpu
