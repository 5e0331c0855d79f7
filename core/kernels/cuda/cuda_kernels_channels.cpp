// CudaKernels: sums over all but the channels, and batch norm.

#include "core/cuda/queues.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/functions.h"

namespace stagecoach {
namespace {

using cuda::compute_stream;
using cuda::Partial;
using cuda::small;

cuda::ChannelExtents channel_extents(const Tensor& x) {
  std::int64_t plane = 1;
  for (int d = 2; d < x.dims(); ++d) {
    plane *= x.size(d);
  }
  small(x.numel());
  return {small(x.size(0)), small(x.size(1)), small(plane)};
}

}  // namespace

void CudaKernels::channel_sums(const Tensor& x, Tensor& out) const {
  dispatch_floating(x.dtype(), "channel_sums", [&]<class T>() {
    const auto e = channel_extents(x);
    Partial<T> partial(std::int64_t{1} * e.channels * e.parts(), x.device());
    cuda::channel_sums(compute_stream(x.device()), e, x.data<T>(), out.mutable_data<T>(), partial.data());
  });
}

void CudaKernels::batch_statistics(const Tensor& x, Tensor& mean, Tensor& variance) const {
  dispatch_floating(x.dtype(), "batch_statistics", [&]<class T>() {
    const auto e = channel_extents(x);
    Partial<T> partial(std::int64_t{1} * e.channels * e.parts(), x.device());
    const cudaStream_t stream = compute_stream(x.device());
    cuda::channel_means(stream, e, x.data<T>(), mean.mutable_data<T>(), partial.data());
    cuda::squared_deviations(stream, e, x.data<T>(), mean.data<T>(), static_cast<T>(1LL * e.samples * e.plane),
                             variance.mutable_data<T>(), partial.data());
  });
}

void CudaKernels::squared_deviations(const Tensor& x, const Tensor& mean, Tensor& sums) const {
  dispatch_floating(x.dtype(), "squared_deviations", [&]<class T>() {
    const auto e = channel_extents(x);
    Partial<T> partial(std::int64_t{1} * e.channels * e.parts(), x.device());
    cuda::squared_deviations(compute_stream(x.device()), e, x.data<T>(), mean.data<T>(), T(1), sums.mutable_data<T>(),
                             partial.data());
  });
}

void CudaKernels::update_running_statistics(const Tensor& mean, const Tensor& variance, double momentum,
                                            std::int64_t count, Tensor& running_mean, Tensor& running_variance) const {
  dispatch_floating(mean.dtype(), "update_running_statistics", [&]<class T>() {
    cuda::update_running_statistics(compute_stream(mean.device()), small(mean.numel()), mean.data<T>(),
                                    variance.data<T>(), static_cast<T>(momentum),
                                    static_cast<T>(count) / static_cast<T>(count - 1), running_mean.mutable_data<T>(),
                                    running_variance.mutable_data<T>());
  });
}

void CudaKernels::inverse_deviation(const Tensor& variance, double epsilon, Tensor& out) const {
  dispatch_floating(variance.dtype(), "inverse_deviation", [&]<class T>() {
    cuda::inverse_deviation(compute_stream(variance.device()), small(variance.numel()), variance.data<T>(),
                            static_cast<T>(epsilon), out.mutable_data<T>());
  });
}

void CudaKernels::batch_norm(const Tensor& x, const Tensor& mean, const Tensor& inverse_deviation, const Tensor& weight,
                             const Tensor& bias, Tensor& y) const {
  dispatch_floating(x.dtype(), "batch_norm", [&]<class T>() {
    cuda::batch_norm(compute_stream(x.device()), channel_extents(x), x.data<T>(), mean.data<T>(),
                     inverse_deviation.data<T>(), weight.data<T>(), bias.data<T>(), y.mutable_data<T>());
  });
}

void CudaKernels::batch_norm_grad_weight(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                         const Tensor& inverse_deviation, Tensor& grad_weight,
                                         Tensor& grad_bias) const {
  dispatch_floating(x.dtype(), "batch_norm_grad_weight", [&]<class T>() {
    const auto e = channel_extents(x);
    Partial<T> partial(std::int64_t{2} * e.channels * e.parts(), x.device());
    cuda::batch_norm_grad_weight(compute_stream(x.device()), e, grad_y.data<T>(), x.data<T>(), mean.data<T>(),
                                 inverse_deviation.data<T>(), grad_weight.mutable_data<T>(),
                                 grad_bias.mutable_data<T>(), partial.data());
  });
}

void CudaKernels::batch_norm_grad_input(const Tensor& grad_y, const Tensor& inverse_deviation, const Tensor& weight,
                                        Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "batch_norm_grad_input", [&]<class T>() {
    cuda::batch_norm_grad_input(compute_stream(grad_y.device()), channel_extents(grad_y), grad_y.data<T>(),
                                inverse_deviation.data<T>(), weight.data<T>(), grad_x.mutable_data<T>());
  });
}

void CudaKernels::batch_norm_grad_input_of_batch(const Tensor& grad_y, const Tensor& x, const Tensor& mean,
                                                 const Tensor& inverse_deviation, const Tensor& weight,
                                                 const Tensor& grad_weight, const Tensor& grad_bias, std::int64_t count,
                                                 Tensor& grad_x) const {
  dispatch_floating(x.dtype(), "batch_norm_grad_input_of_batch", [&]<class T>() {
    cuda::batch_norm_grad_input_of_batch(compute_stream(x.device()), channel_extents(x), grad_y.data<T>(), x.data<T>(),
                                         mean.data<T>(), inverse_deviation.data<T>(), weight.data<T>(),
                                         grad_weight.data<T>(), grad_bias.data<T>(), static_cast<T>(count),
                                         grad_x.mutable_data<T>());
  });
}

}  // namespace stagecoach
