/// @file
/// Optimizer steps as one pass over all parameters of a model: each parameter of a small model takes less time than a
/// launch.

#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/rows.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/fixed_order_sum.h"
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
    bool decays;
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
                        blocks,
                        update.decays};
    blocks += static_cast<int>((size + kThreads - 1) / kThreads);
  }
};

/// Addresses of tensors, passed to a kernel by value.
template <class T>
struct TensorTable {
  static constexpr int kMax = 128;
  struct Entry {
    T* x;
    std::int64_t size;
    int first_block;
  };
  Entry entries[kMax];
  int count = 0;
  int blocks = 0;
  /// Appends a tensor and assigns its elements to blocks.
  void add(T* x, std::int64_t size, std::int64_t block_size) {
    entries[count++] = {x, size, blocks};
    blocks += to_int((size + block_size - 1) / block_size);
  }
};

/// Returns the entry that a block works on. An entry without elements has no blocks.
template <class Table>
__device__ const auto& entry_of_block(const Table& table, int block) {
  int found = table.count - 1;
  while (table.entries[found].first_block > block) {
    --found;
  }
  return table.entries[found];
}

// ---- Gradient norms

/// A warp adds the squares of one block of 1,024 elements.
template <class T>
__global__ void block_squares_kernel(TensorTable<const T> table, double* block_sums) {
  const auto [block, lane] = RowThread<kWarp>();
  if (block < table.blocks) {
    const auto& entry = entry_of_block(table, block);
    const long long first = static_cast<long long>(block - entry.first_block) * kSquaresBlock;
    double sum = 0;
    for (long long i = first + lane; i < entry.size && i < first + kSquaresBlock; i += kWarp) {
      const auto x = static_cast<double>(entry.x[i]);
      sum += x * x;
    }
    RowReduction<double, kWarp> none;
    sum = reduce_row<kWarp>(none, sum, Sum{});
    if (lane == 0) {
      block_sums[block] = sum;
    }
  }
}

/// A warp adds the sums of the blocks of one tensor.
template <class T>
__global__ void tensor_squares_kernel(TensorTable<const T> table, const double* block_sums, double* sums) {
  const auto tensor = static_cast<int>(blockIdx.x);
  const int end = tensor + 1 < table.count ? table.entries[tensor + 1].first_block : table.blocks;
  double sum = 0;
  for (int block = table.entries[tensor].first_block + static_cast<int>(threadIdx.x); block < end; block += kWarp) {
    sum += block_sums[block];
  }
  RowReduction<double, kWarp> none;
  sum = reduce_row<kWarp>(none, sum, Sum{});
  if (threadIdx.x == 0) {
    sums[tensor] = sum;
  }
}

__global__ void clip_factor_kernel(int count, const double* squares, double max_norm, double* factor) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += squares[i];
  }
  *factor = fmin(1.0, max_norm / (sqrt(sum) + 1e-6));
}

template <class T>
__global__ void scale_kernel(TensorTable<T> table, const double* factor) {
  const auto block = static_cast<int>(blockIdx.x);
  const auto& entry = entry_of_block(table, block);
  const long long i = static_cast<long long>(block - entry.first_block) * kThreads + threadIdx.x;
  if (i < entry.size) {
    entry.x[i] *= static_cast<T>(*factor);
  }
}

// ---- Steps

template <class T>
__global__ void sgd_kernel(OptimizerTable<T> table, T rate, T momentum, T weight_decay) {
  const auto& entry = entry_of_block(table, static_cast<int>(blockIdx.x));
  const T decay = entry.decays ? weight_decay : T(0);
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
  T decay;  // as a term of the gradient
  T kept;   // of the parameter, by decoupled weight decay
};

/// Returns 1 - base^step. For a base near 1, the difference itself would lose the digits in which powers differ between
/// libraries.
__device__ inline double one_minus_power(double base, double step) { return -expm1(step * log(base)); }

template <class T>
__global__ void adam_kernel(OptimizerTable<T> table, AdamSettings settings) {
  STAGECOACH_SHARED(AdamFactors<T>, factors);
  const auto& entry = entry_of_block(table, static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) {
    const auto step = static_cast<double>(*entry.step);
    factors.rate = static_cast<T>(settings.learning_rate / one_minus_power(settings.beta1, step));
    factors.root = static_cast<T>(sqrt(one_minus_power(settings.beta2, step)));
    factors.rest1 = static_cast<T>(1 - settings.beta1);
    factors.rest2 = static_cast<T>(1 - settings.beta2);
    const double decay = entry.decays ? settings.weight_decay : 0;
    factors.decay = static_cast<T>(settings.decoupled_decay ? 0 : decay);
    factors.kept = static_cast<T>(settings.decoupled_decay ? 1 - settings.learning_rate * decay : 1);
  }
  __syncthreads();
  const long long i = static_cast<long long>(static_cast<int>(blockIdx.x) - entry.first_block) * kThreads + threadIdx.x;
  if (i >= entry.size) {
    return;
  }
  const auto beta1 = static_cast<T>(settings.beta1);
  const auto beta2 = static_cast<T>(settings.beta2);
  const T direction = entry.grad[i] + factors.decay * entry.parameter[i];
  const T first = beta1 * entry.state[0][i] + factors.rest1 * direction;
  const T second = beta2 * entry.state[1][i] + factors.rest2 * direction * direction;
  entry.state[0][i] = first;
  entry.state[1][i] = second;
  entry.parameter[i] = factors.kept * entry.parameter[i] -
                       factors.rate * first / (sqrt(second) / factors.root + static_cast<T>(settings.epsilon));
}

template <class T>
__global__ void adagrad_kernel(OptimizerTable<T> table, T rate, T epsilon, T weight_decay) {
  const auto& entry = entry_of_block(table, static_cast<int>(blockIdx.x));
  const long long i = static_cast<long long>(static_cast<int>(blockIdx.x) - entry.first_block) * kThreads + threadIdx.x;
  if (i < entry.size) {
    const T direction = entry.grad[i] + (entry.decays ? weight_decay : T(0)) * entry.parameter[i];
    const T sum = entry.state[0][i] + direction * direction;
    entry.state[0][i] = sum;
    entry.parameter[i] -= rate * direction / (sqrt(sum) + epsilon);
  }
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

void adagrad_step(std::span<ParameterUpdate> updates, const AdagradSettings& settings) {
  const auto step = [&]<class T>(cudaStream_t stream, const OptimizerTable<T>& table) {
    launch(adagrad_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table,
           static_cast<T>(settings.learning_rate), static_cast<T>(settings.epsilon),
           static_cast<T>(settings.weight_decay));
  };
  in_tables<float>(updates, step);
  in_tables<double>(updates, step);
}

void sums_of_squares(std::span<const Tensor> tensors, Tensor& sums) {
  if (tensors.empty()) {
    return;
  }
  const cudaStream_t stream = compute_stream(sums.device());
  dispatch_floating(tensors.front().dtype(), "sums_of_squares", [&]<class T>() {
    std::int64_t blocks = 0;
    for (const Tensor& tensor : tensors) {
      blocks += (tensor.numel() + kSquaresBlock - 1) / kSquaresBlock;
    }
    Workspace<double> workspace(blocks, sums.device());
    double* block_sums = workspace.data();
    auto* tensor_sums = sums.mutable_data<double>();
    for (std::size_t first = 0; first < tensors.size(); first += TensorTable<const T>::kMax) {
      TensorTable<const T> table;
      for (const Tensor& tensor : tensors.subspan(first, std::min<std::size_t>(tensors.size() - first, table.kMax))) {
        table.add(tensor.data<T>(), tensor.numel(), static_cast<int>(kSquaresBlock));
      }
      constexpr int kRows = kRowBlockThreads / kWarp;
      if (table.blocks > 0) {
        launch(block_squares_kernel<T>, static_cast<unsigned>((table.blocks + kRows - 1) / kRows), kRowBlockThreads, 0,
               stream, table, block_sums);
      }
      launch(tensor_squares_kernel<T>, static_cast<unsigned>(table.count), kWarp, 0, stream, table, block_sums,
             tensor_sums + first);
      block_sums += table.blocks;
    }
  });
}

void clip_to_norm(const Tensor& squares, double max_norm, std::span<Tensor> gradients) {
  if (gradients.empty()) {
    return;
  }
  const cudaStream_t stream = compute_stream(squares.device());
  Workspace<double> factor(1, squares.device());
  launch(clip_factor_kernel, 1, 1, 0, stream, to_int(squares.numel()), squares.data<double>(), max_norm, factor.data());
  dispatch_floating(gradients.front().dtype(), "clip_to_norm", [&]<class T>() {
    for (std::size_t first = 0; first < gradients.size(); first += TensorTable<T>::kMax) {
      TensorTable<T> table;
      for (Tensor& g : gradients.subspan(first, std::min<std::size_t>(gradients.size() - first, table.kMax))) {
        table.add(g.mutable_data<T>(), g.numel(), kThreads);
      }
      if (table.blocks > 0) {
        launch(scale_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, stream, table,
               static_cast<const double*>(factor.data()));
      }
    }
  });
}

}  // namespace

void add_optimizer_steps(Kernels& table) {
  table.sums_of_squares = sums_of_squares;
  table.clip_to_norm = clip_to_norm;
  table.adagrad_step = adagrad_step;
  table.sgd_step = sgd_step;
  table.adam_step = adam_step;
}

}  // namespace stagecoach::cuda
