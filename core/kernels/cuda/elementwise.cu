/// @file
/// Whole arrays, by Thrust: every element for itself. Each call is one pass over memory.

#include <thrust/fill.h>
#include <thrust/transform.h>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/functions.h"

namespace stagecoach::cuda {

/// out[i] = function(x[i])
template <class T, class Out, class Function>
void map(cudaStream_t stream, const T* x, Out* out, std::int64_t count, const Function& function) {
  with_thrust(stream, [=](const auto& policy) { thrust::transform(policy, x, x + count, out, function); });
}

/// out[i] = function(a[i], b[i])
template <class T, class Function>
void map(cudaStream_t stream, const T* a, const T* b, T* out, std::int64_t count, const Function& function) {
  with_thrust(stream, [=](const auto& policy) { thrust::transform(policy, a, a + count, b, out, function); });
}

template <class T>
void fill(cudaStream_t stream, T value, T* out, std::int64_t count) {
  with_thrust(stream, [=](const auto& policy) { thrust::fill_n(policy, out, count, value); });
}

void convert(cudaStream_t stream, const float* x, Half* out, std::int64_t count) {
  map(stream, x, out, count, [] __device__(float v) { return to_half(v); });
}

void convert(cudaStream_t stream, const Half* x, float* out, std::int64_t count) {
  map(stream, x, out, count, [] __device__(Half v) { return to_float(v); });
}

template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* out, std::int64_t count) {
  map(stream, a, b, out, count, [] __device__(T x, T y) { return x + y; });
}

template <class T>
void add_scaled(cudaStream_t stream, const T* x, T factor, T* sum, std::int64_t count) {
  map(stream, x, sum, sum, count, [factor] __device__(T v, T s) { return s + factor * v; });
}

template <class T>
void scale(cudaStream_t stream, const T* x, T factor, T* out, std::int64_t count) {
  map(stream, x, out, count, [factor] __device__(T v) { return factor * v; });
}

template <class T>
void relu(cudaStream_t stream, const T* x, T* out, std::int64_t count) {
  // Written so that a value that is not a number stays one: a diverged run must be seen.
  map(stream, x, out, count, [] __device__(T v) { return v < 0 ? T(0) : v; });
}

template <class T>
void relu_grad(cudaStream_t stream, const T* grad_y, const T* y, T* out, std::int64_t count) {
  map(stream, grad_y, y, out, count, [] __device__(T grad, T value) { return value > 0 ? grad : T(0); });
}

template <class T>
void scaled_difference(cudaStream_t stream, const T* a, const T* b, T factor, const T* weight, T* out,
                       std::int64_t count) {
  map(stream, a, b, out, count, [factor, weight] __device__(T x, T y) { return factor * *weight * (x - y); });
}

template void fill<std::int32_t>(cudaStream_t, std::int32_t, std::int32_t*, std::int64_t);
template void fill<std::uint8_t>(cudaStream_t, std::uint8_t, std::uint8_t*, std::int64_t);
template void fill<Half>(cudaStream_t, Half, Half*, std::int64_t);
#define STAGECOACH_INSTANTIATE(T)                                                 \
  template void fill<T>(cudaStream_t, T, T*, std::int64_t);                       \
  template void add<T>(cudaStream_t, const T*, const T*, T*, std::int64_t);       \
  template void add_scaled<T>(cudaStream_t, const T*, T, T*, std::int64_t);       \
  template void scale<T>(cudaStream_t, const T*, T, T*, std::int64_t);            \
  template void relu<T>(cudaStream_t, const T*, T*, std::int64_t);                \
  template void relu_grad<T>(cudaStream_t, const T*, const T*, T*, std::int64_t); \
  template void scaled_difference<T>(cudaStream_t, const T*, const T*, T, const T*, T*, std::int64_t);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
