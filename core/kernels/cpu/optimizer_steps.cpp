#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/kernels/cpu/elementwise.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/cpu/workspace.h"
#include "core/kernels/fixed_order_sum.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

template <class T>
double sum_of_squares(const Tensor& tensor) {
  const T* x = tensor.data<T>();
  const std::int64_t count = tensor.numel();
  const std::int64_t blocks = (count + kSquaresBlock - 1) / kSquaresBlock;
  const Workspace<double> workspace(tensor.device(), blocks);
  double* sums = workspace.data();
  parallel_for(tensor.device(), blocks, [=](std::int64_t block) {
    const T* from = x + block * kSquaresBlock;
    sums[block] = warp_sum(std::min(kSquaresBlock, count - block * kSquaresBlock),
                           [=](std::int64_t i) { return static_cast<double>(from[i]) * static_cast<double>(from[i]); });
  });
  return warp_sum(blocks, [=](std::int64_t block) { return sums[block]; });
}

void sums_of_squares(std::span<const Tensor> tensors, Tensor& sums) {
  auto* sum = sums.mutable_data<double>();
  for (const Tensor& tensor : tensors) {
    dispatch_floating(tensor.dtype(), "sums_of_squares", [&]<class T>() { *sum++ = sum_of_squares<T>(tensor); });
  }
}

void clip_to_norm(const Tensor& squares, double max_norm, std::span<Tensor> gradients) {
  const auto* square = squares.data<double>();
  const double norm = std::sqrt(std::accumulate(square, square + squares.numel(), 0.0));
  const double factor = std::min(1.0, max_norm / (norm + 1e-6));
  for (Tensor& gradient : gradients) {
    dispatch_floating(gradient.dtype(), "clip_to_norm", [&]<class T>() {
      T* g = gradient.mutable_data<T>();
      for_each_element(gradient.device(), gradient.numel(),
                       [=, f = static_cast<T>(factor)](std::int64_t i) { g[i] *= f; });
    });
  }
}

template <class T>
void update_by_sgd(ParameterUpdate& update, const SgdSettings& settings) {
  const Device device = update.parameter.device();
  const std::int64_t count = update.parameter.numel();
  const T* g = update.grad.data<T>();
  T* p = update.parameter.mutable_data<T>();
  const auto rate = static_cast<T>(settings.learning_rate);
  const auto decay = static_cast<T>(update.decays ? settings.weight_decay : 0);
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
  const double all_decay = update.decays ? settings.weight_decay : 0;
  const auto decay = static_cast<T>(settings.decoupled_decay ? 0 : all_decay);
  const auto kept = static_cast<T>(settings.decoupled_decay ? 1 - settings.learning_rate * all_decay : 1);
  const auto epsilon = static_cast<T>(settings.epsilon);
  // The bias corrections: m / (1 - beta1^t) and sqrt(v / (1 - beta2^t)).
  const auto rate = static_cast<T>(settings.learning_rate / (1 - std::pow(settings.beta1, step)));
  const auto root = static_cast<T>(std::sqrt(1 - std::pow(settings.beta2, step)));
  for_each_element(update.parameter.device(), update.parameter.numel(), [=](std::int64_t i) {
    const T d = g[i] + decay * p[i];
    m[i] = beta1 * m[i] + rest1 * d;
    v[i] = beta2 * v[i] + rest2 * d * d;
    p[i] = kept * p[i] - rate * m[i] / (std::sqrt(v[i]) / root + epsilon);
  });
}

template <class T>
void update_by_adagrad(ParameterUpdate& update, const AdagradSettings& settings) {
  const T* g = update.grad.data<T>();
  T* p = update.parameter.mutable_data<T>();
  T* sum = update.state[0].mutable_data<T>();
  const auto rate = static_cast<T>(settings.learning_rate);
  const auto epsilon = static_cast<T>(settings.epsilon);
  const auto decay = static_cast<T>(update.decays ? settings.weight_decay : 0);
  for_each_element(update.parameter.device(), update.parameter.numel(), [=](std::int64_t i) {
    const T d = g[i] + decay * p[i];
    sum[i] += d * d;
    p[i] -= rate * d / (std::sqrt(sum[i]) + epsilon);
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

void adagrad_step(std::span<ParameterUpdate> updates, const AdagradSettings& settings) {
  for (ParameterUpdate& update : updates) {
    dispatch_floating(update.parameter.dtype(), "adagrad_step",
                      [&]<class T>() { update_by_adagrad<T>(update, settings); });
  }
}

}  // namespace

void add_optimizer_steps(Tables& tables) {
  tables.add<&Kernels::sums_of_squares>("sums_of_squares", sums_of_squares);
  tables.add<&Kernels::clip_to_norm>("clip_to_norm", clip_to_norm);
  tables.add<&Kernels::adagrad_step>("adagrad_step", adagrad_step);
  tables.add<&Kernels::sgd_step>("sgd_step", sgd_step);
  tables.add<&Kernels::adam_step>("adam_step", adam_step);
}

}  // namespace stagecoach::cpu
