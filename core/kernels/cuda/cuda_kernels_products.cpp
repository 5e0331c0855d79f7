// CudaKernels: linear layers and convolutions.

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"
#include "core/kernels/cuda/arguments.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/kernels/cuda/functions.h"

namespace stagecoach {
namespace {

using cuda::compute_stream;
using cuda::Partial;
using cuda::small;

/// The fastest kernel that the settings allow.
template <class T>
cuda::ProductPlan plan_for(const cuda::ProductExtents& e, Device device) {
  small(std::int64_t{1} * e.rows * e.columns);
  if (sizeof(T) == sizeof(double)) {
    return plan_product(cuda::ProductKernel::tiled, e);
  }
  const bool tensor_cores = e.rows > 16 && cuda::uses_tf32(device);
  return plan_product(tensor_cores ? cuda::ProductKernel::tensor_cores : cuda::ProductKernel::registers, e);
}

/// Calls function(stream, plan, partial) with what a matrix product of extents `e` needs.
template <class T, class Function>
void with_plan(const cuda::ProductExtents& e, Device device, const Function& function) {
  const cuda::ProductPlan plan = plan_for<T>(e, device);
  Partial<T> partial(plan.partial_elements(e), device);
  function(compute_stream(device), plan, partial.data());
}

template <class T>
T* data_or_null(Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data<T>() : nullptr;
}

cuda::LinearExtents linear_extents(const Tensor& x, const Tensor& y) {
  small(x.numel(), cuda::kMostElements);
  small(y.numel(), cuda::kMostElements);
  small(x.size(1) * y.size(1), cuda::kMostElements);  // of the weight
  return {small(x.size(0)), small(x.size(1)), small(y.size(1))};
}

cuda::ConvExtents conv_extents(const Tensor& x, const Tensor& y, const Window& window) {
  STAGECOACH_CHECK(window.kernel <= cuda::ConvExtents::kWidestKernel,
                   "conv2d on cuda: a kernel of {0} x {0}; at most {1} x {1}", window.kernel,
                   cuda::ConvExtents::kWidestKernel);
  small(x.numel(), cuda::kMostElements);
  small(y.numel(), cuda::kMostElements);
  small(x.size(1) * y.size(1) * window.kernel * window.kernel, cuda::kMostElements);  // of the weight
  return {small(x.size(0)),     small(x.size(1)),     small(x.size(2)),      small(x.size(3)), small(y.size(1)),
          small(window.kernel), small(window.stride), small(window.padding), small(y.size(2)), small(y.size(3))};
}

/// `weight` and `bias` may be undefined; and_bias tells whether the layer has a bias at all.
template <class T>
void linear_grad_weight_of(const Tensor& grad_y, const Tensor& x, bool and_bias, Tensor& weight, Tensor& bias) {
  const auto e = linear_extents(x, grad_y);
  with_plan<T>(e.grad_weight(and_bias), x.device(),
               [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
                 cuda::linear_grad_weight(stream, plan, e, and_bias, grad_y.data<T>(), x.data<T>(),
                                          data_or_null<T>(weight), data_or_null<T>(bias), partial);
               });
}

template <class T>
void conv2d_grad_weight_of(const Tensor& grad_y, const Tensor& x, const Window& window, bool and_bias, Tensor& weight,
                           Tensor& bias) {
  const auto e = conv_extents(x, grad_y, window);
  with_plan<T>(e.grad_weight(and_bias), x.device(),
               [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
                 cuda::conv2d_grad_weight(stream, plan, e, and_bias, grad_y.data<T>(), x.data<T>(),
                                          data_or_null<T>(weight), data_or_null<T>(bias), partial);
               });
}

}  // namespace

void CudaKernels::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) const {
  dispatch_floating(x.dtype(), "linear", [&]<class T>() {
    const auto e = linear_extents(x, y);
    with_plan<T>(e.forward(), x.device(), [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
      cuda::linear(stream, plan, e, x.data<T>(), weight.data<T>(), bias.defined() ? bias.data<T>() : nullptr,
                   y.mutable_data<T>(), partial);
    });
  });
}

void CudaKernels::linear_grad_input(const Tensor& grad_y, const Tensor& weight, Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "linear_grad_input", [&]<class T>() {
    const auto e = linear_extents(grad_x, grad_y);
    with_plan<T>(e.grad_input(), grad_y.device(), [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
      cuda::linear_grad_input(stream, plan, e, grad_y.data<T>(), weight.data<T>(), grad_x.mutable_data<T>(), partial);
    });
  });
}

void CudaKernels::linear_grad_weight(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight) const {
  dispatch_floating(x.dtype(), "linear_grad_weight", [&]<class T>() {
    Tensor no_bias;
    linear_grad_weight_of<T>(grad_y, x, false, grad_weight, no_bias);
  });
}

void CudaKernels::linear_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight,
                                              Tensor& grad_bias) const {
  dispatch_floating(x.dtype(), "linear_grad_weight_and_bias",
                    [&]<class T>() { linear_grad_weight_of<T>(grad_y, x, true, grad_weight, grad_bias); });
}

void CudaKernels::conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Window& window,
                         Tensor& y) const {
  dispatch_floating(x.dtype(), "conv2d", [&]<class T>() {
    const auto e = conv_extents(x, y, window);
    with_plan<T>(e.forward(), x.device(), [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
      cuda::conv2d(stream, plan, e, x.data<T>(), weight.data<T>(), bias.defined() ? bias.data<T>() : nullptr,
                   y.mutable_data<T>(), partial);
    });
  });
}

void CudaKernels::conv2d_grad_input(const Tensor& grad_y, const Tensor& weight, const Window& window,
                                    Tensor& grad_x) const {
  dispatch_floating(grad_y.dtype(), "conv2d_grad_input", [&]<class T>() {
    const auto e = conv_extents(grad_x, grad_y, window);
    with_plan<T>(e.grad_input(), grad_y.device(), [&](cudaStream_t stream, const cuda::ProductPlan& plan, T* partial) {
      cuda::conv2d_grad_input(stream, plan, e, grad_y.data<T>(), weight.data<T>(), grad_x.mutable_data<T>(), partial);
    });
  });
}

void CudaKernels::conv2d_grad_weight(const Tensor& grad_y, const Tensor& x, const Window& window,
                                     Tensor& grad_weight) const {
  dispatch_floating(x.dtype(), "conv2d_grad_weight", [&]<class T>() {
    Tensor no_bias;
    conv2d_grad_weight_of<T>(grad_y, x, window, false, grad_weight, no_bias);
  });
}

void CudaKernels::conv2d_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, const Window& window,
                                              Tensor& grad_weight, Tensor& grad_bias) const {
  dispatch_floating(x.dtype(), "conv2d_grad_weight_and_bias",
                    [&]<class T>() { conv2d_grad_weight_of<T>(grad_y, x, window, true, grad_weight, grad_bias); });
}

}  // namespace stagecoach
