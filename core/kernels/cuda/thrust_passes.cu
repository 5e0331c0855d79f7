/// @file
/// Whole arrays, by Thrust: every element for itself. Each call is one pass over memory. For what is in every step of
/// training see elementwise.cu.

#include <thrust/execution_policy.h>
#include <thrust/system_error.h>
#include <thrust/transform.h>

#include "core/cuda/device_code.h"
#include "core/kernels/cuda/functions.h"

namespace stagecoach::cuda {

/// Calls body(policy) with the Thrust policy that runs on `stream` and does not wait. Throws Error where Thrust fails.
template <class Body>
void with_thrust(cudaStream_t stream, const Body& body) {
#ifdef STAGECOACH_EMULATED
  emulation::give(stream, [=] { body(thrust::seq); });
#else
  try {
    body(thrust::cuda::par_nosync.on(stream));
  } catch (const thrust::system_error& error) {
    thrust_failed(error.what());
  }
#endif
}

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

void convert(cudaStream_t stream, const float* x, Half* out, std::int64_t count) {
  map(stream, x, out, count, [] __device__(float v) { return to_half(v); });
}

void convert(cudaStream_t stream, const Half* x, float* out, std::int64_t count) {
  map(stream, x, out, count, [] __device__(Half v) { return to_float(v); });
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
void scaled_difference(cudaStream_t stream, const T* a, const T* b, T factor, const T* weight, T* out,
                       std::int64_t count) {
  map(stream, a, b, out, count, [factor, weight] __device__(T x, T y) { return factor * *weight * (x - y); });
}

#define STAGECOACH_INSTANTIATE(T)                                           \
  template void add_scaled<T>(cudaStream_t, const T*, T, T*, std::int64_t); \
  template void scale<T>(cudaStream_t, const T*, T, T*, std::int64_t);      \
  template void scaled_difference<T>(cudaStream_t, const T*, const T*, T, const T*, T*, std::int64_t);
STAGECOACH_INSTANTIATE(float)
STAGECOACH_INSTANTIATE(double)
#undef STAGECOACH_INSTANTIATE

}  // namespace stagecoach::cuda
