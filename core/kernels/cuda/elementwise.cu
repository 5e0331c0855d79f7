/// @file
/// Elementwise operations by Thrust, each one pass over memory; and operations on single numbers that stay on the GPU,
/// so that the CPU need not wait for them.

#include <thrust/fill.h>
#include <thrust/transform.h>

#include <algorithm>
#include <functional>

#include "core/cuda/device_code.h"
#include "core/cuda/thrust.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/fast_divmod.cuh"
#include "core/kernels/cuda/threads.cuh"
#include "core/kernels/groups.h"

namespace stagecoach::cuda {

template <class T>
void fill_with(T value, Tensor& out) {
  T* to = out.mutable_data<T>();
  const std::int64_t count = out.numel();
  with_thrust(compute_stream(out.device()), [=](const auto& policy) { thrust::fill_n(policy, to, count, value); });
}

/// out[i] = function(x[i])
template <class T, class Out = T, class Function>
void map(const Function& function, const Tensor& x, Tensor& out) {
  const T* from = x.data<T>();
  Out* to = out.mutable_data<Out>();
  const std::int64_t count = out.numel();
  with_thrust(compute_stream(out.device()),
              [=](const auto& policy) { thrust::transform(policy, from, from + count, to, function); });
}

/// out[i] = function(a[i], b[i])
template <class T, class Function>
void map(const Function& function, const Tensor& a, const Tensor& b, Tensor& out) {
  const T* left = a.data<T>();
  const T* right = b.data<T>();
  T* to = out.mutable_data<T>();
  const std::int64_t count = out.numel();
  with_thrust(compute_stream(out.device()),
              [=](const auto& policy) { thrust::transform(policy, left, left + count, right, to, function); });
}

// ---- Functions of one element

struct ToHalf {
  __device__ Half operator()(float x) const { return to_half(x); }
};

struct ToFloat {
  __device__ float operator()(Half x) const { return to_float(x); }
};

template <class T>
struct Add {
  __device__ T operator()(T a, T b) const { return a + b; }
};

template <class T>
struct AddScaled {
  T factor;
  __device__ T operator()(T x, T sum) const { return sum + factor * x; }
};

template <class T>
struct Scale {
  T factor;
  __device__ T operator()(T x) const { return factor * x; }
};

template <class T>
struct Relu {
  // Written so that NaN propagates: a diverged run must be visible.
  __device__ T operator()(T x) const { return x < 0 ? T(0) : x; }
};

template <class T>
struct ReluGrad {
  __device__ T operator()(T grad, T y) const { return y > 0 ? grad : T(0); }
};

// The forms of GELU are those of core/kernels/cpu/gelu.h.
template <class T>
struct GeluExact {
  static constexpr T kInverseRoot2 = T(0.70710678118654752440);
  static constexpr T kDensityAtZero = T(0.39894228040143267794);
  __device__ T operator()(T x) const { return x * (1 + erf(x * kInverseRoot2)) / 2; }
  __device__ T operator()(T grad, T x) const {
    return grad * ((1 + erf(x * kInverseRoot2)) / 2 + x * kDensityAtZero * exp(-x * x / 2));
  }
};

template <class T>
struct GeluTanh {
  static constexpr T kFactor = T(0.79788456080286535588);
  static constexpr T kCubic = T(0.044715);
  __device__ static T tangent(T x) { return tanh(kFactor * (x + kCubic * x * x * x)); }
  __device__ T operator()(T x) const { return x * (1 + tangent(x)) / 2; }
  __device__ T operator()(T grad, T x) const {
    const T t = tangent(x);
    const T slope = kFactor * (1 + 3 * kCubic * x * x);
    return grad * ((1 + t) / 2 + x * (1 - t * t) / 2 * slope);
  }
};

/// A thread computes four elements of a sample, for which it draws one block of random numbers.
template <class T>
__global__ void dropout_kernel(int count, FastDivmod quarters, int size, DropoutMask mask, std::uint32_t threshold,
                               T factor, const T* x, T* y) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int sample = quarters.quotient(at);
    const int first = 4 * quarters.remainder(at, sample);
    const Philox::Block words =
        mask.random.block(static_cast<std::uint64_t>(first / 4), mask.first + static_cast<std::uint64_t>(sample));
    for (int e = first; e < first + 4 && e < size; ++e) {
      const long long i = static_cast<long long>(sample) * size + e;
      y[i] = words[static_cast<std::size_t>(e - first)] >> 8 < threshold ? T(0) : factor * x[i];
    }
  }
}

// ---- Single numbers

template <class T>
__global__ void accumulate_kernel(const T* x, double* sum) {
  *sum += static_cast<double>(*x);
}

/// Addresses of counters, passed to the kernel by value.
struct Counters {
  static constexpr int kMax = 128;
  std::int32_t* at[kMax];
  int count;
};

__global__ void increment_kernel(Counters counters) {
  if (static_cast<int>(threadIdx.x) < counters.count) {
    ++*counters.at[threadIdx.x];
  }
}

// ---- The rows of the table

/// A thread copies one of `count` elements; `from` and `to` are the first column's first elements.
template <class T>
__global__ void copy_columns_kernel(int count, FastDivmod columns, const T* from, int from_columns, T* to,
                                    int to_columns) {
  const auto at = static_cast<int>(element());
  if (at < count) {
    const int row = columns.quotient(at);
    const int column = columns.remainder(at, row);
    to[row * to_columns + column] = from[row * from_columns + column];
  }
}

namespace {

void fill(double value, Tensor& out) {
  switch (out.dtype()) {
    case DType::float32:
      return fill_with(static_cast<float>(value), out);
    case DType::float64:
      return fill_with(value, out);
    case DType::int32:
      return fill_with(static_cast<std::int32_t>(value), out);
    case DType::uint8:
      return fill_with(static_cast<std::uint8_t>(value), out);
    case DType::float16:
      return fill_with(to_half(static_cast<float>(value)), out);
  }
}

/// Returns whether a copy by the GPU would read what it has already overwritten.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto* bytes_a = static_cast<const char*>(a.raw_data());
  const auto* bytes_b = static_cast<const char*>(b.raw_data());
  const std::less<> before;
  return before(bytes_a, bytes_b + b.bytes()) && before(bytes_b, bytes_a + a.bytes());
}

void copy(const Tensor& source, Tensor& out) {
  const Device to = out.device();
  const Device from = source.device();
  if (out.bytes() == 0 || out.raw_data() == source.raw_data()) {
    return;
  }
  if (overlap(source, out)) {
    Tensor between = Tensor::empty(source.shape(), source.dtype(), from);
    copy(source, between);
    return copy(between, out);
  }
  const Device mover = to.type == DeviceType::cuda ? to : from;
  if (from.type == DeviceType::cuda && from != mover) {  // another GPU, or another slot: wait for its work so far
    Event ready;
    ready.record({from, Stream::kCompute});
    ready.wait({mover, Stream::kCompute});
  }
  STAGECOACH_CUDA(cudaMemcpyAsync(out.raw_mutable_data(), source.raw_data(), out.bytes(), cudaMemcpyDefault,
                                  compute_stream(mover)));
  if (to.type == DeviceType::cpu || from.type == DeviceType::cpu) {
    synchronize(Stream{mover, Stream::kCompute});  // so that the CPU may now read or change its side
  } else if (from != mover) {
    Event done;
    done.record({mover, Stream::kCompute});
    done.wait({from, Stream::kCompute});  // before the source's memory is reused
  }
}

void copy_columns(const Tensor& source, std::int64_t from, std::int64_t to, std::int64_t columns, Tensor& out) {
  dispatch_floating(out.dtype(), "copy_columns", [&]<class T>() {
    to_int(std::max(source.numel(), out.numel()));
    launch_elements(out.device(), copy_columns_kernel<T>, to_int(out.size(0) * columns), FastDivmod(to_int(columns)),
                    source.data<T>() + from, to_int(source.size(1)), out.mutable_data<T>() + to, to_int(out.size(1)));
  });
}

void convert(const Tensor& source, Tensor& out) {
  if (out.dtype() == DType::float16) {
    map<float, Half>(ToHalf{}, source, out);
  } else {
    map<Half, float>(ToFloat{}, source, out);
  }
}

void add(const Tensor& a, const Tensor& b, Tensor& out) {
  dispatch_floating(out.dtype(), "add", [&]<class T>() { map<T>(Add<T>{}, a, b, out); });
}

void add_scaled(const Tensor& x, double factor, Tensor& sum) {
  dispatch_floating(sum.dtype(), "add_scaled",
                    [&]<class T>() { map<T>(AddScaled<T>{static_cast<T>(factor)}, x, sum, sum); });
}

void scale(const Tensor& x, double factor, Tensor& out) {
  dispatch_floating(out.dtype(), "scale", [&]<class T>() { map<T>(Scale<T>{static_cast<T>(factor)}, x, out); });
}

void relu(const Tensor& x, Tensor& out) {
  dispatch_floating(out.dtype(), "relu", [&]<class T>() { map<T>(Relu<T>{}, x, out); });
}

void relu_grad(const Tensor& grad_y, const Tensor& y, Tensor& out) {
  dispatch_floating(out.dtype(), "relu_grad", [&]<class T>() { map<T>(ReluGrad<T>{}, grad_y, y, out); });
}

void gelu(const Tensor& x, GeluForm form, Tensor& out) {
  dispatch_floating(out.dtype(), "gelu", [&]<class T>() {
    form == GeluForm::exact ? map<T>(GeluExact<T>{}, x, out) : map<T>(GeluTanh<T>{}, x, out);
  });
}

void gelu_grad(const Tensor& grad_y, const Tensor& x, GeluForm form, Tensor& out) {
  dispatch_floating(out.dtype(), "gelu_grad", [&]<class T>() {
    form == GeluForm::exact ? map<T>(GeluExact<T>{}, grad_y, x, out) : map<T>(GeluTanh<T>{}, grad_y, x, out);
  });
}

void accumulate(const Tensor& x, Tensor& sum) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class T>() {
    launch(accumulate_kernel<T>, 1, 1, 0, compute_stream(sum.device()), x.data<T>(), sum.mutable_data<double>());
  });
}

void dropout(const Tensor& x, const DropoutMask& mask, Tensor& y) {
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    const int size = to_int(x.shape().product(1, x.dims()));
    const int quarters = (size + 3) / 4;
    if (x.numel() > 0) {
      launch_elements(x.device(), dropout_kernel<T>, to_int(x.size(0) * quarters), FastDivmod(quarters), size, mask,
                      mask.threshold(), static_cast<T>(1 / (1 - mask.probability)), x.data<T>(), y.mutable_data<T>());
    }
  });
}

void increment(std::span<Tensor> counters) {
  for (std::size_t first = 0; first < counters.size(); first += Counters::kMax) {
    Counters table{};
    for (Tensor& counter : counters.subspan(first, std::min<std::size_t>(counters.size() - first, table.kMax))) {
      table.at[table.count++] = counter.mutable_data<std::int32_t>();
    }
    launch(increment_kernel, 1, Counters::kMax, 0, compute_stream(counters[first].device()), table);
  }
}

}  // namespace

void add_elementwise(Kernels& table) {
  table.fill = fill;
  table.copy = copy;
  table.convert = convert;
  table.copy_columns = copy_columns;
  table.add = add;
  table.add_scaled = add_scaled;
  table.scale = scale;
  table.relu = relu;
  table.relu_grad = relu_grad;
  table.gelu = gelu;
  table.gelu_grad = gelu_grad;
  table.accumulate = accumulate;
  table.dropout = dropout;
  table.increment = increment;
}

}  // namespace stagecoach::cuda
