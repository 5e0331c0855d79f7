#include <cuda_runtime.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "tests/emulation/machine.h"
#include "tests/emulation/stream.h"

namespace stagecoach::cuda::emulation {

Machine& machine() {
  static Machine machine = [] {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return visible != nullptr && std::strcmp(visible, "0") == 0 ? Machine{.devices = 1} : Machine{};
  }();
  return machine;
}

std::atomic<long>& pieces_of_work() {
  static std::atomic<long> count{0};
  return count;
}

std::atomic<long>& stream_waits() {
  static std::atomic<long> count{0};
  return count;
}

namespace {

constexpr std::align_val_t kAlignment{256};  // that of cudaMalloc
thread_local int current_device = 0;

/// The memory that is out, of all GPUs.
class Heap {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > machine().memory - used_[current_device]) {
      return nullptr;
    }
    void* memory = ::operator new(bytes, kAlignment);
    used_[current_device] += bytes;
    blocks_[memory] = {current_device, bytes};
    return memory;
  }
  bool deallocate(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(memory);
    if (block == blocks_.end()) {
      return false;
    }
    used_[block->second.device] -= block->second.bytes;
    blocks_.erase(block);
    ::operator delete(memory, kAlignment);
    return true;
  }
  std::size_t free() {
    const std::lock_guard lock(mutex_);
    return machine().memory - used_[current_device];
  }

 private:
  struct Block {
    int device;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<int, std::size_t> used_;
};

Heap& heap() {
  static auto& heap = *new Heap;  // never destroyed: allocators give back late
  return heap;
}

}  // namespace
}  // namespace stagecoach::cuda::emulation

using namespace stagecoach::cuda::emulation;

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
  }
  return "cudaErrorUnknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  Dl_info info;
  *name = ::dladdr(kernel, &info) != 0 ? info.dli_sname : nullptr;
  return *name == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().devices;
  if (machine().driver_version < 13000) {
    return cudaErrorInsufficientDriver;
  }
  return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= machine().devices) {
    return cudaErrorInvalidDevice;
  }
  std::strcpy(properties->name, "emulated GPU");
  properties->major = 9;
  properties->minor = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().devices) {
    return cudaErrorInvalidDevice;
  }
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (const cudaError_t error = unless_recording(); error != cudaSuccess) {
    return error;
  }
  *memory = heap().take(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = unless_recording(); error != cudaSuccess) {
    return error;
  }
  return heap().deallocate(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (const cudaError_t error = unless_recording(); error != cudaSuccess) {
    return error;
  }
  *memory = ::operator new(bytes, kAlignment, std::nothrow);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  ::operator delete(memory, kAlignment);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = heap().free();
  *total_bytes = machine().memory;
  return cudaSuccess;
}
