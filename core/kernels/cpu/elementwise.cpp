#include "core/kernels/cpu/elementwise.h"

#include "core/kernels/cpu/gelu.h"
#include "core/kernels/cpu/tables.h"
#include "core/kernels/groups.h"

namespace stagecoach::cpu {
namespace {

template <class T>
void fill_as(double value, Tensor& out) {
  std::fill_n(out.mutable_data<T>(), out.numel(), static_cast<T>(value));
}

void fill(double value, Tensor& out) {
  switch (out.dtype()) {
    case DType::float32:
      return fill_as<float>(value, out);
    case DType::float64:
      return fill_as<double>(value, out);
    case DType::int32:
      return fill_as<std::int32_t>(value, out);
    case DType::uint8:
      return fill_as<std::uint8_t>(value, out);
    case DType::float16:
      std::fill_n(out.mutable_data<Half>(), out.numel(), to_half(static_cast<float>(value)));
  }
}

void copy(const Tensor& source, Tensor& out) {
  std::memmove(out.raw_mutable_data(), source.raw_data(), out.bytes());  // views of one storage may overlap
}

void convert(const Tensor& source, Tensor& out) {
  if (out.dtype() == DType::float16) {
    const float* from = source.data<float>();
    Half* to = out.mutable_data<Half>();
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { to[i] = to_half(from[i]); });
  } else {
    const Half* from = source.data<Half>();
    float* to = out.mutable_data<float>();
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { to[i] = to_float(from[i]); });
  }
}

void copy_columns(const Tensor& source, std::int64_t from, std::int64_t to, std::int64_t count, Tensor& out) {
  dispatch_floating(out.dtype(), "copy_columns", [&]<class T>() {
    const T* read = source.data<T>() + from;
    T* write = out.mutable_data<T>() + to;
    const std::int64_t source_columns = source.size(1);
    const std::int64_t out_columns = out.size(1);
    parallel_for(out.device(), out.size(0),
                 [=](std::int64_t row) { std::copy_n(read + row * source_columns, count, write + row * out_columns); });
  });
}

void add(const Tensor& a, const Tensor& b, Tensor& out) {
  dispatch_floating(out.dtype(), "add", [&]<class T>() {
    const T* left = a.data<T>();
    const T* right = b.data<T>();
    T* sum = out.mutable_data<T>();
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { sum[i] = left[i] + right[i]; });
  });
}

void add_scaled(const Tensor& x, double factor, Tensor& sum) {
  dispatch_floating(sum.dtype(), "add_scaled", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = sum.mutable_data<T>();
    const auto a = static_cast<T>(factor);
    for_each_element(sum.device(), sum.numel(), [=](std::int64_t i) { to[i] += a * from[i]; });
  });
}

void scale(const Tensor& x, double factor, Tensor& out) {
  dispatch_floating(out.dtype(), "scale", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    const auto a = static_cast<T>(factor);
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { to[i] = a * from[i]; });
  });
}

void accumulate(const Tensor& x, Tensor& sum) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class T>() { *sum.mutable_data<double>() += *x.data<T>(); });
}

void dropout(const Tensor& x, const DropoutMask& mask, Tensor& y) {
  dispatch_floating(x.dtype(), "dropout", [&]<class T>() {
    const std::int64_t size = x.shape().product(1, x.dims());
    const auto factor = static_cast<T>(1 / (1 - mask.probability));
    const std::uint32_t threshold = mask.threshold();
    const T* from = x.data<T>();  // [N, size]
    T* to = y.mutable_data<T>();
    parallel_for(x.device(), x.size(0), [=, random = mask.random, first = mask.first](std::int64_t n) {
      for (std::int64_t e = 0; e < size; e += 4) {
        const Philox::Block words =
            random.block(static_cast<std::uint64_t>(e / 4), first + static_cast<std::uint64_t>(n));
        for (std::int64_t i = n * size + e; i < n * size + std::min(e + 4, size); ++i) {
          to[i] = words[static_cast<std::size_t>(i - n * size - e)] >> 8 < threshold ? T(0) : factor * from[i];
        }
      }
    });
  });
}

void increment(std::span<Tensor> counters) {
  for (Tensor& counter : counters) {
    ++*counter.mutable_data<std::int32_t>();
  }
}

void relu(const Tensor& x, Tensor& out) {
  dispatch_floating(out.dtype(), "relu", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    // Written so that NaN propagates: a diverged run must be visible.
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { to[i] = from[i] < 0 ? T(0) : from[i]; });
  });
}

void relu_grad(const Tensor& grad_y, const Tensor& y, Tensor& out) {
  dispatch_floating(out.dtype(), "relu_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();
    const T* value = y.data<T>();
    T* to = out.mutable_data<T>();
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) {
      const T g = grad[i];  // read unconditionally: a selection of values needs no branch
      to[i] = value[i] > 0 ? g : T(0);
    });
  });
}

void gelu(const Tensor& x, GeluForm form, Tensor& out) {
  dispatch_floating(out.dtype(), "gelu", [&]<class T>() {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    if (form == GeluForm::tanh) {
      return map_vectors<T>(
          out.device(), out.numel(), [](const Vec<T>& value) { return fast::gelu<T>(value); }, to, from);
    }
    for_each_element(out.device(), out.numel(), [=](std::int64_t i) { to[i] = plain::gelu(from[i], form); });
  });
}

void gelu_grad(const Tensor& grad_y, const Tensor& x, GeluForm form, Tensor& out) {
  dispatch_floating(out.dtype(), "gelu_grad", [&]<class T>() {
    const T* grad = grad_y.data<T>();
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    if (form == GeluForm::tanh) {
      const auto product = [](const Vec<T>& g, const Vec<T>& value) { return g * fast::gelu_grad<T>(value); };
      return map_vectors<T>(out.device(), out.numel(), product, to, grad, from);
    }
    for_each_element(out.device(), out.numel(),
                     [=](std::int64_t i) { to[i] = grad[i] * plain::gelu_grad(from[i], form); });
  });
}

}  // namespace

void add_elementwise(Tables& tables) {
  tables.add<&Kernels::fill>("fill", fill);
  tables.add<&Kernels::copy>("copy", copy);
  tables.add<&Kernels::convert>("convert", convert);
  tables.add<&Kernels::copy_columns>("copy_columns", copy_columns);
  tables.add<&Kernels::add>("add", add);
  tables.add<&Kernels::add_scaled>("add_scaled", add_scaled);
  tables.add<&Kernels::scale>("scale", scale);
  tables.add<&Kernels::accumulate>("accumulate", accumulate);
  tables.add<&Kernels::dropout>("dropout", dropout);
  tables.add<&Kernels::increment>("increment", increment);
  tables.add<&Kernels::relu>("relu", relu);
  tables.add<&Kernels::relu_grad>("relu_grad", relu_grad);
  tables.add<&Kernels::gelu>("gelu", gelu);
  tables.add<&Kernels::gelu_grad>("gelu_grad", gelu_grad);
}

}  // namespace stagecoach::cpu
