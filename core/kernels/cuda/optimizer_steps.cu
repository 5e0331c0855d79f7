/// @file
/// Optimizer steps as one pass over all parameters of a model: each parameter of a small model takes less time than a
/// launch.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

/// Addresses of parameters and their state, passed to the kernel by value.
template <class T>
struct OptimizerTable {
  static constexpr int kMax = 48;
  struct Entry {
    const T* grad;
    T* parameter;
    T* state[2];
    const std::int32_t* step;  // counts from 1
    std::int64_t size;
    int first_block;
  };
  Entry entries[kMax];
  int count = 0;
  int blocks = 0;
  /// Appends a parameter and assigns its elements to blocks.
  void add(ParameterUpdate& update) {
    const auto state = [&](std::size_t i) {
      return i < update.state.size() ? update.state[i].mutable_data<T>() : nullptr;
    };
    const std::int64_t size = update.parameter.numel();
    entries[count++] = {update.grad.data<T>(),
                        update.parameter.mutable_data<T>(),
                        {state(0), state(1)},
                        update.count.data<std::int32_t>(),
                        size,
                        blocks};
    blocks += static_cast<int>((size + kThreads - 1) / kThreads);
  }
};

/// Returns the entry that this block works on. An entry without elements has no blocks.
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

/// The values that are computed in float64, once per block. The bias corrections depend on the step: m / (1 - beta1^t)
/// and sqrt(v / (1 - beta2^t)). 1 minus a beta2 that is rounded to float32 would be 1.3e-5 too small, as most of its
/// digits cancel.
template <class T>
struct AdamFactors {
  T rate;
  T root;
  T rest1;  // 1 - beta1
  T rest2;  // 1 - beta2
};

/// Returns 1 - base^step. For a base near 1, the difference itself would lose the digits in which powers differ between
/// libraries.
__device__ inline double one_minus_power(double base, double step) { return -expm1(step * log(base)); }

template <class T>
__global__ void adam_kernel(OptimizerTable<T> table, AdamSettings settings) {
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

namespace {

/// Calls step(stream, table) for the updates of type T, with as many updates per call as fit into a table.
template <class T, class Step>
void in_tables(std::span<ParameterUpdate> updates, const Step& step) {
  OptimizerTable<T> table;
  const auto run = [&] {
    if (table.blocks > 0) {
      step(compute_stream(updates.front().parameter.device()), table);
    }
    table = {};
  };
  for (ParameterUpdate& update : updates) {
    if (update.parameter.dtype() != dtype_of<T>) {
      continue;
    }
    table.add(update);
    if (table.count == table.kMax) {
      run();
    }
  }
  run();
}

void sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) {
  const auto step = [&]<class T>(cudaStream_t stream, const OptimizerTable<T>& table) {
    launch(sgd_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table,
           static_cast<T>(settings.learning_rate), static_cast<T>(settings.momentum),
           static_cast<T>(settings.weight_decay));
  };
  in_tables<float>(updates, step);
  in_tables<double>(updates, step);
}

void adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) {
  const auto step = [&]<class T>(cudaStream_t stream, const OptimizerTable<T>& table) {
    launch(adam_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table, settings);
  };
  in_tables<float>(updates, step);
  in_tables<double>(updates, step);
}

}  // namespace

void add_optimizer_steps(Kernels& table) {
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
}

}  // namespace stagecoach::cuda
