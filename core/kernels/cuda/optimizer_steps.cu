/// @file
/// Optimizer steps as one pass over all parameters of a model: a small model's parameters each take less time than
/// a launch.

#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

template <class T>
void OptimizerTable<T>::add(const T* grad, T* parameter, T* first_state, T* second_state, const std::int32_t* step,
                            std::int64_t size) {
  entries[count++] = {grad, parameter, {first_state, second_state}, step, size, blocks};
  blocks += static_cast<int>((size + kThreads - 1) / kThreads);
}

/// The entry that this block works on. An entry without elements has no blocks, and is passed over.
template <class T>
__device__ const typename OptimizerTable<T>::Entry& entry_of_block(const OptimizerTable<T>& table) {
  int found = table.count - 1;
  while (table.entries[found].first_block > static_cast<int>(blockIdx.x)) {
    --found;
  }
  return table.entries[found];
}

template <class T>
__global__ void sgd_kernel(OptimizerTable<T> table, T rate, T momentum, T decay) {
  wait_for_earlier_kernels();
  const auto& entry = entry_of_block(table);
  const long long i = static_cast<long long>(static_cast<int>(blockIdx.x) - entry.first_block) * kThreads + threadIdx.x;
  if (i >= entry.size) {
    return;
  }
  const T direction = entry.grad[i] + decay * entry.parameter[i];
  if (entry.state[0] == nullptr) {
    entry.parameter[i] -= rate * direction;
    return;
  }
  const T velocity = momentum * entry.state[0][i] + direction;
  entry.state[0][i] = velocity;
  entry.parameter[i] -= rate * velocity;
}

template <class T>
void sgd_step(cudaStream_t stream, const OptimizerTable<T>& table, const SgdSettings& settings) {
  if (table.blocks > 0) {
    launch(sgd_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table,
           static_cast<T>(settings.learning_rate), static_cast<T>(settings.momentum),
           static_cast<T>(settings.weight_decay));
  }
}

/// What is worked out in double, once per block. The bias corrections depend on the step: m / (1 - beta1^t) and
/// sqrt(v / (1 - beta2^t)). And 1 - beta2 of a beta2 that is rounded to float32 would be 1.3e-5 too small, as most of
/// its digits cancel.
template <class T>
struct AdamFactors {
  T rate;
  T root;
  T rest1;  // 1 - beta1
  T rest2;  // 1 - beta2
};

/// 1 - base^step. For a base near 1 the difference itself would lose the digits in which powers differ from one library
/// to the next.
__device__ inline double one_minus_power(double base, double step) { return -expm1(step * log(base)); }

template <class T>
__global__ void adam_kernel(OptimizerTable<T> table, AdamSettings settings) {
  wait_for_earlier_kernels();
  STAGECOACH_SHARED(AdamFactors<T>, factors);
  const auto& entry = entry_of_block(table);
  if (threadIdx.x == 0) {
    const auto step = static_cast<double>(*entry.step);
    factors.rate = static_cast<T>(settings.learning_rate / one_minus_power(settings.beta1, step));
    factors.root = static_cast<T>(sqrt(one_minus_power(settings.beta2, step)));
    factors.rest1 = static_cast<T>(1 - settings.beta1);
    factors.rest2 = static_cast<T>(1 - settings.beta2);
  }
  __syncthreads();
  const long long i = static_cast<long long>(static_cast<int>(blockIdx.x) - entry.first_block) * kThreads + threadIdx.x;
  if (i >= entry.size) {
    return;
  }
  const auto beta1 = static_cast<T>(settings.beta1);
  const auto beta2 = static_cast<T>(settings.beta2);
  const T direction = entry.grad[i] + static_cast<T>(settings.weight_decay) * entry.parameter[i];
  const T first = beta1 * entry.state[0][i] + factors.rest1 * direction;
  const T second = beta2 * entry.state[1][i] + factors.rest2 * direction * direction;
  entry.state[0][i] = first;
  entry.state[1][i] = second;
  entry.parameter[i] -= factors.rate * first / (sqrt(second) / factors.root + static_cast<T>(settings.epsilon));
}

template <class T>
void adam_step(cudaStream_t stream, const OptimizerTable<T>& table, const AdamSettings& settings) {
  if (table.blocks > 0) {
    launch(adam_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table, settings);
  }
}

#define STAGECOACH_INSTANTIATE(T)                                                        \
  template struct OptimizerTable<T>;                                                     \
  template void sgd_step<T>(cudaStream_t, const OptimizerTable<T>&, const SgdSettings&); \
  template void adam_step<T>(cudaStream_t, const OptimizerTable<T>&, const AdamSettings&);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
