#include "core/cuda/device_code.h"
#include "core/cuda/overlap.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {
namespace {

thread_local bool allowed = false;

}  // namespace

/// Does nothing; asked for what all kernels of this program were compiled for.
__global__ void sample_kernel() { wait_for_earlier_kernels(); }

Overlap::Overlap(Device device) : before_(allowed) {
  int major = 0;
  cudaFuncAttributes code{};
  STAGECOACH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  STAGECOACH_CUDA(cudaFuncGetAttributes(&code, sample_kernel));
  // With older code the kernels would not wait.
  allowed = overlap_allowed() && major >= 9 && code.ptxVersion >= 90;
}

Overlap::~Overlap() { allowed = before_; }

bool kernels_overlap() { return allowed; }

}  // namespace stagecoach::cuda
