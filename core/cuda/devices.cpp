#include <fmt/format.h>

#include <atomic>
#include <string>

#include "core/base/error.h"
#include "core/cuda/device_code.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {
namespace {

std::atomic<bool> tf32_allowed{false};

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Returns why no GPU can be used, or an empty text if `count` GPUs can.
std::string obstacle(int& count) {
  int driver = 0;
  int runtime = 0;
  STAGECOACH_CUDA(cudaDriverGetVersion(&driver));
  STAGECOACH_CUDA(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) {
    return "this machine has no NVIDIA driver; install one";
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this build needs {}; update the driver",
                       version_text(driver), version_text(runtime));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return "the NVIDIA driver finds no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  if (error != cudaSuccess) {
    return fmt::format("the NVIDIA driver reports: {} ({}); check nvidia-smi", cudaGetErrorString(error),
                       cudaGetErrorName(error));
  }
  return "";
}

/// Returns the number of GPUs; the error names `requested`.
int require_gpus(const std::string& requested) {
  int count = 0;
  if (const std::string why = obstacle(count); !why.empty()) {
    cudaGetLastError();
    throw UsageError(fmt::format("{} cannot be used: {}, or use device `cpu`", requested, why));
  }
  return count;
}

/// Ten times the major number, plus the minor one.
int compute_capability(Device device) {
  int major = 0;
  int minor = 0;
  STAGECOACH_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index));
  STAGECOACH_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index));
  return 10 * major + minor;
}

}  // namespace

int gpu_count() { return require_gpus("cuda"); }

void require_device(Device device) {
  const int count = require_gpus(to_string(device));
  if (device.index < 0 || device.index >= count) {
    throw UsageError(fmt::format("{} does not exist: this machine has {}", to_string(device),
                                 count == 1 ? "one GPU, cuda:0" : fmt::format("cuda:0 to cuda:{}", count - 1)));
  }
}

std::string description(Device device) {
  cuda::require_device(device);
  cudaDeviceProp properties;
  int driver = 0;
  int runtime = 0;
  STAGECOACH_CUDA(cudaGetDeviceProperties(&properties, device.index));
  STAGECOACH_CUDA(cudaDriverGetVersion(&driver));
  STAGECOACH_CUDA(cudaRuntimeGetVersion(&runtime));
  return fmt::format("{}, compute capability {}.{}, driver for CUDA {}, runtime {}", properties.name, properties.major,
                     properties.minor, version_text(driver), version_text(runtime));
}

void allow_tf32(bool on) { tf32_allowed = on; }

bool uses_tf32(Device device) { return tf32_allowed && compute_capability(device) >= 80; }

bool has_warpgroups(Device device) {
#ifdef STAGECOACH_HAS_SM90A
  constexpr bool kCompiled = true;
#else
  constexpr bool kCompiled = false;
#endif
  return kIsEmulated || (kCompiled && compute_capability(device) == 90);
}

bool is_emulated() { return kIsEmulated; }

}  // namespace stagecoach::cuda
