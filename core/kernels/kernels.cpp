#include "core/kernels/kernels.h"

#include "core/cuda_backend.h"
#include "core/kernels/cpu/cpu_kernels.h"

namespace stagecoach {

void Kernels::linear_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, Tensor& grad_weight,
                                          Tensor& grad_bias) const {
  if (grad_weight.defined()) {
    linear_grad_weight(grad_y, x, grad_weight);
  }
  if (grad_bias.defined()) {
    channel_sums(grad_y, grad_bias);
  }
}

void Kernels::conv2d_grad_weight_and_bias(const Tensor& grad_y, const Tensor& x, const Window& window,
                                          Tensor& grad_weight, Tensor& grad_bias) const {
  if (grad_weight.defined()) {
    conv2d_grad_weight(grad_y, x, window, grad_weight);
  }
  if (grad_bias.defined()) {
    channel_sums(grad_y, grad_bias);
  }
}

const Kernels& kernels(Device device) {
  static const CpuKernels cpu;
  return device.type == DeviceType::cpu ? cpu : cuda::kernels();
}

}  // namespace stagecoach
