#include "core/kernels/kernels.h"

#include "core/cuda_backend.h"
#include "core/kernels/cpu/cpu_kernels.h"

namespace stagecoach {

const Kernels& kernels(Device device) {
  static const CpuKernels cpu;
  return device.type == DeviceType::cpu ? cpu : cuda::kernels();
}

}  // namespace stagecoach
