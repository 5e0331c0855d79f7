/// @file
/// Whole arrays, every element for itself: the passes that are in every step of training. Thrust could make them too,
/// as it makes the others (thrust_passes.cu). But its kernels do not overlap with those before and behind them
/// (core/cuda/overlap.h), and beside a small model's kernels that is what they cost.

#include "core/kernels/cuda/functions.h"
#include "core/kernels/cuda/neighbours.cuh"
#include "core/kernels/cuda/threads.cuh"

namespace stagecoach::cuda {

/// out[i] = function(inputs[i]…). A thread takes kWide neighbours; `count` counts these.
template <int kWide, class Function, class T, class... Inputs>
__global__ void map_array(long long count, Function function, T* out, const Inputs*... inputs) {
  wait_for_earlier_kernels();
  const long long at = element();
  if (at < count) {
    reinterpret_cast<Neighbours<T, kWide>*>(out)[at] =
        map_neighbours<T, kWide>(function, reinterpret_cast<const Neighbours<Inputs, kWide>*>(inputs)[at]...);
  }
}

template <class Function, class T, class... Inputs>
void map(cudaStream_t stream, std::int64_t count, const Function& function, T* out, const Inputs*... inputs) {
  const auto body = [&]<int kWide>() {
    if (count > 0) {
      launch(map_array<kWide, Function, T, Inputs...>, blocks_for(count / kWide), kThreads, 0, stream, count / kWide,
             function, out, inputs...);
    }
  };
  in_fours_or_ones(count, body, out, inputs...);
}

template <class T>
void fill(cudaStream_t stream, T value, T* out, std::int64_t count) {
  map(
      stream, count, [value] __device__() { return value; }, out);
}

template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* out, std::int64_t count) {
  map(
      stream, count, [] __device__(T x, T y) { return x + y; }, out, a, b);
}

template <class T>
void relu(cudaStream_t stream, const T* x, T* out, std::int64_t count) {
  // Written so that a value that is not a number stays one: a diverged run must be seen.
  map(
      stream, count, [] __device__(T v) { return v < 0 ? T(0) : v; }, out, x);
}

template <class T>
void relu_grad(cudaStream_t stream, const T* grad_y, const T* y, T* out, std::int64_t count) {
  map(
      stream, count, [] __device__(T grad, T value) { return value > 0 ? grad : T(0); }, out, grad_y, y);
}

template void fill<std::int32_t>(cudaStream_t, std::int32_t, std::int32_t*, std::int64_t);
template void fill<std::uint8_t>(cudaStream_t, std::uint8_t, std::uint8_t*, std::int64_t);
template void fill<Half>(cudaStream_t, Half, Half*, std::int64_t);
#define STAGECOACH_INSTANTIATE(T)                                           \
  template void fill<T>(cudaStream_t, T, T*, std::int64_t);                 \
  template void add<T>(cudaStream_t, const T*, const T*, T*, std::int64_t); \
  template void relu<T>(cudaStream_t, const T*, T*, std::int64_t);          \
  template void relu_grad<T>(cudaStream_t, const T*, const T*, T*, std::int64_t);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
