#include "core/kernels/cuda/cuda_kernels.h"

#include <algorithm>
#include <functional>

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/functions.h"
#include "core/stream.h"

namespace stagecoach {
namespace {

using cuda::compute_stream;
using cuda::Partial;
using cuda::small;

cuda::PoolExtents pool_extents(const Tensor& x, const Tensor& y, const Window& window) {
  small(x.numel());
  small(y.numel());
  return {small(x.size(0) * x.size(1)), small(x.size(2)),     small(x.size(3)),     small(y.size(2)), small(y.size(3)),
          small(window.kernel),         small(window.stride), small(window.padding)};
}

/// What a copy by the GPU would spoil.
bool overlap(const Tensor& a, const Tensor& b) {
  const auto* of_a = static_cast<const char*>(a.raw_data());
  const auto* of_b = static_cast<const char*>(b.raw_data());
  const std::less<> before;
  return before(of_a, of_b + b.bytes()) && before(of_b, of_a + a.bytes());
}

}  // namespace

// ---- Elementwise

void CudaKernels::fill(double value, Tensor& out) const {
  const cudaStream_t stream = compute_stream(out.device());
  switch (out.dtype()) {
    case DType::float32:
      return cuda::fill(stream, static_cast<float>(value), out.mutable_data<float>(), out.numel());
    case DType::float64:
      return cuda::fill(stream, value, out.mutable_data<double>(), out.numel());
    case DType::int32:
      return cuda::fill(stream, static_cast<std::int32_t>(value), out.mutable_data<std::int32_t>(), out.numel());
    case DType::uint8:
      return cuda::fill(stream, static_cast<std::uint8_t>(value), out.mutable_data<std::uint8_t>(), out.numel());
    case DType::float16:
      return cuda::fill(stream, to_half(static_cast<float>(value)), out.mutable_data<Half>(), out.numel());
  }
}

void CudaKernels::copy(const Tensor& source, Tensor& out) const {
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
  if (from.type == DeviceType::cuda && from != mover) {  // another GPU, or another slot: after its work so far
    Event ready;
    ready.record({from, Stream::kCompute});
    ready.wait({mover, Stream::kCompute});
  }
  STAGECOACH_CUDA(cudaMemcpyAsync(out.raw_mutable_data(), source.raw_data(), out.bytes(), cudaMemcpyDefault,
                                  compute_stream(mover)));
  if (to.type == DeviceType::cpu || from.type == DeviceType::cpu) {
    synchronize({mover, Stream::kCompute});  // the CPU may read or change its side now
  } else if (from != mover) {
    Event done;
    done.record({mover, Stream::kCompute});
    done.wait({from, Stream::kCompute});  // before the source's memory is used again
  }
}

void CudaKernels::convert(const Tensor& source, Tensor& out) const {
  const cudaStream_t stream = compute_stream(out.device());
  if (out.dtype() == DType::float16) {
    cuda::convert(stream, source.data<float>(), out.mutable_data<Half>(), out.numel());
  } else {
    cuda::convert(stream, source.data<Half>(), out.mutable_data<float>(), out.numel());
  }
}

void CudaKernels::add(const Tensor& a, const Tensor& b, Tensor& out) const {
  dispatch_floating(out.dtype(), "add", [&]<class T>() {
    cuda::add(compute_stream(out.device()), a.data<T>(), b.data<T>(), out.mutable_data<T>(), out.numel());
  });
}

void CudaKernels::add_scaled(const Tensor& x, double factor, Tensor& sum) const {
  dispatch_floating(sum.dtype(), "add_scaled", [&]<class T>() {
    cuda::add_scaled(compute_stream(sum.device()), x.data<T>(), static_cast<T>(factor), sum.mutable_data<T>(),
                     sum.numel());
  });
}

void CudaKernels::scale(const Tensor& x, double factor, Tensor& out) const {
  dispatch_floating(out.dtype(), "scale", [&]<class T>() {
    cuda::scale(compute_stream(out.device()), x.data<T>(), static_cast<T>(factor), out.mutable_data<T>(), out.numel());
  });
}

void CudaKernels::accumulate(const Tensor& x, Tensor& sum) const {
  dispatch_floating(x.dtype(), "accumulate", [&]<class T>() {
    cuda::accumulate(compute_stream(sum.device()), x.data<T>(), sum.mutable_data<double>());
  });
}

void CudaKernels::increment(std::span<Tensor> counters) const {
  for (std::size_t first = 0; first < counters.size(); first += cuda::Counters::kMost) {
    cuda::Counters table{};
    for (Tensor& counter : counters.subspan(first, std::min<std::size_t>(counters.size() - first, table.kMost))) {
      table.at[table.count++] = counter.mutable_data<std::int32_t>();
    }
    cuda::increment(compute_stream(counters[first].device()), table);
  }
}

void CudaKernels::relu(const Tensor& x, Tensor& out) const {
  dispatch_floating(out.dtype(), "relu", [&]<class T>() {
    cuda::relu(compute_stream(out.device()), x.data<T>(), out.mutable_data<T>(), out.numel());
  });
}

void CudaKernels::relu_grad(const Tensor& grad_y, const Tensor& y, Tensor& out) const {
  dispatch_floating(out.dtype(), "relu_grad", [&]<class T>() {
    cuda::relu_grad(compute_stream(out.device()), grad_y.data<T>(), y.data<T>(), out.mutable_data<T>(), out.numel());
  });
}

// ---- Pooling

void CudaKernels::max_pool2d(const Tensor& x, const Window& window, Tensor& y, Tensor& picked) const {
  dispatch_floating(x.dtype(), "max_pool2d", [&]<class T>() {
    cuda::max_pool2d(compute_stream(x.device()), pool_extents(x, y, window), x.data<T>(), y.mutable_data<T>(),
                     picked.mutable_data<std::int32_t>());
  });
}

void CudaKernels::max_pool2d_grad(const Tensor& grad_y, const Tensor& picked, const Window& window,
                                  Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "max_pool2d_grad", [&]<class T>() {
    cuda::max_pool2d_grad(compute_stream(grad_y.device()), pool_extents(grad_x, grad_y, window), grad_y.data<T>(),
                          picked.data<std::int32_t>(), grad_x.mutable_data<T>());
  });
}

void CudaKernels::global_average_pool(const Tensor& x, Tensor& y) const {
  dispatch_floating(x.dtype(), "global_average_pool", [&]<class T>() {
    small(x.numel());
    cuda::plane_means(compute_stream(x.device()), small(y.numel()), small(x.size(2) * x.size(3)), x.data<T>(),
                      y.mutable_data<T>());
  });
}

void CudaKernels::global_average_pool_grad(const Tensor& grad_y, Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "global_average_pool_grad", [&]<class T>() {
    small(grad_x.numel());
    cuda::plane_means_grad(compute_stream(grad_y.device()), small(grad_y.numel()),
                           small(grad_x.size(2) * grad_x.size(3)), grad_y.data<T>(), grad_x.mutable_data<T>());
  });
}

// ---- Rows

void CudaKernels::softmax(const Tensor& x, Tensor& y) const {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    cuda::softmax(compute_stream(x.device()), small(x.size(0)), small(x.size(1)), x.data<T>(), y.mutable_data<T>());
  });
}

void CudaKernels::softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const {
  dispatch_floating(y.dtype(), "softmax_grad", [&]<class T>() {
    cuda::softmax_grad(compute_stream(y.device()), small(y.size(0)), small(y.size(1)), grad_y.data<T>(), y.data<T>(),
                       grad_x.mutable_data<T>());
  });
}

void CudaKernels::log_softmax(const Tensor& x, Tensor& y) const {
  dispatch_floating(x.dtype(), "log_softmax", [&]<class T>() {
    cuda::log_softmax(compute_stream(x.device()), small(x.size(0)), small(x.size(1)), x.data<T>(), y.mutable_data<T>());
  });
}

void CudaKernels::log_softmax_grad(const Tensor& grad_y, const Tensor& y, Tensor& grad_x) const {
  dispatch_floating(y.dtype(), "log_softmax_grad", [&]<class T>() {
    cuda::log_softmax_grad(compute_stream(y.device()), small(y.size(0)), small(y.size(1)), grad_y.data<T>(),
                           y.data<T>(), grad_x.mutable_data<T>());
  });
}

// ---- Losses

void CudaKernels::cross_entropy(const Tensor& logits, const Tensor& labels, double factor, Tensor& loss,
                                Tensor& probabilities) const {
  dispatch_floating(logits.dtype(), "cross_entropy", [&]<class T>() {
    small(logits.numel());
    Partial<double> row_losses(logits.size(0), logits.device());
    cuda::cross_entropy(compute_stream(logits.device()), small(logits.size(0)), small(logits.size(1)), logits.data<T>(),
                        labels.data<std::int32_t>(), factor, row_losses.data(), loss.mutable_data<T>(),
                        probabilities.mutable_data<T>());
  });
}

void CudaKernels::cross_entropy_grad(const Tensor& grad_loss, const Tensor& probabilities, const Tensor& labels,
                                     double factor, Tensor& grad_logits) const {
  dispatch_floating(probabilities.dtype(), "cross_entropy_grad", [&]<class T>() {
    small(probabilities.numel());
    cuda::cross_entropy_grad(compute_stream(probabilities.device()), small(probabilities.size(0)),
                             small(probabilities.size(1)), grad_loss.data<T>(), probabilities.data<T>(),
                             labels.data<std::int32_t>(), factor, grad_logits.mutable_data<T>());
  });
}

void CudaKernels::squared_error(const Tensor& a, const Tensor& b, double factor, Tensor& loss) const {
  dispatch_floating(a.dtype(), "squared_error", [&]<class T>() {
    Partial<double> parts(cuda::squared_error_parts(a.numel()), a.device());
    cuda::squared_error(compute_stream(a.device()), a.data<T>(), b.data<T>(), a.numel(), factor, parts.data(),
                        loss.mutable_data<T>());
  });
}

void CudaKernels::squared_error_grad(const Tensor& grad_loss, const Tensor& a, const Tensor& b, double factor,
                                     Tensor& grad_a) const {
  dispatch_floating(a.dtype(), "squared_error_grad", [&]<class T>() {
    cuda::scaled_difference(compute_stream(a.device()), a.data<T>(), b.data<T>(), static_cast<T>(2 * factor),
                            grad_loss.data<T>(), grad_a.mutable_data<T>(), a.numel());
  });
}

// ---- Optimizer steps

namespace {

/// Calls step(stream, table) for the updates of type T, as many at once as fit a table.
template <class T, class Step>
void in_tables(std::span<ParameterUpdate> updates, const Step& step) {
  cuda::OptimizerTable<T> table;
  const auto run = [&] {
    if (table.count > 0) {
      step(compute_stream(updates.front().parameter.device()), table);
      table = {};
    }
  };
  for (ParameterUpdate& update : updates) {
    if (update.parameter.dtype() != dtype_of<T>) {
      continue;
    }
    const auto state = [&](std::size_t i) {
      return i < update.state.size() ? update.state[i].mutable_data<T>() : nullptr;
    };
    table.add(update.grad.data<T>(), update.parameter.mutable_data<T>(), state(0), state(1),
              update.count.data<std::int32_t>(), update.parameter.numel());
    if (table.count == table.kMost) {
      run();
    }
  }
  run();
}

}  // namespace

void CudaKernels::sgd_step(std::span<ParameterUpdate> updates, const SgdSettings& settings) const {
  const auto step = [&](cudaStream_t stream, const auto& table) { cuda::sgd_step(stream, table, settings); };
  in_tables<float>(updates, step);
  in_tables<double>(updates, step);
}

void CudaKernels::adam_step(std::span<ParameterUpdate> updates, const AdamSettings& settings) const {
  const auto step = [&](cudaStream_t stream, const auto& table) { cuda::adam_step(stream, table, settings); };
  in_tables<float>(updates, step);
  in_tables<double>(updates, step);
}

// ---- Pictures

void CudaKernels::normalize(const Tensor& images, const Normalization& normalization, Tensor& out) const {
  small(images.numel());
  cuda::normalize(compute_stream(images.device()), small(images.size(0)), small(images.size(2) * images.size(3)),
                  images.data<std::uint8_t>(), normalization, out.mutable_data<float>());
}

void CudaKernels::count_correct(const Tensor& scores, const Tensor& labels, Tensor& count) const {
  dispatch_floating(scores.dtype(), "count_correct", [&]<class T>() {
    cuda::count_correct(compute_stream(scores.device()), small(scores.size(0)), small(scores.size(1)), scores.data<T>(),
                        labels.data<std::int32_t>(), count.mutable_data<std::int32_t>());
  });
}

namespace cuda {

const Kernels& kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace cuda
}  // namespace stagecoach
