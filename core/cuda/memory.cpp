#include "core/cuda/memory.h"

#include "core/cuda/queues.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {
namespace {

/// Returns the memory, or nullptr if there is no more; the allocator then retries and reports what is in use.
void* unless_exhausted(cudaError_t error, void* memory, const char* call) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  if (error != cudaSuccess) {
    call_failed(error, call, __FILE__, __LINE__);
  }
  return memory;
}

/// Allows this thread to allocate memory while it records: an allocation is not work of the stream, but is forbidden by
/// default.
class InsistWhileRecording {
 public:
  InsistWhileRecording() { STAGECOACH_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~InsistWhileRecording() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  InsistWhileRecording(const InsistWhileRecording&) = delete;
  InsistWhileRecording& operator=(const InsistWhileRecording&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

void* DeviceMemory::allocate(std::size_t bytes) {
  select(device_);
  const InsistWhileRecording insist;
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  return unless_exhausted(error, memory, "cudaMalloc(&memory, bytes)");
}

void DeviceMemory::deallocate(void* memory) {
  select(device_);
  const InsistWhileRecording insist;
  STAGECOACH_CUDA(cudaFree(memory));  // waits for the work that still uses it
}

bool DeviceMemory::is_host_memory() const { return is_emulated(); }

std::optional<std::size_t> DeviceMemory::free_bytes() const {
  select(device_);
  std::size_t left = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&left, &total) != cudaSuccess) {
    cudaGetLastError();  // so that the next call does not report it
    return std::nullopt;
  }
  return left;
}

void* PinnedMemory::allocate(std::size_t bytes) {
  const InsistWhileRecording insist;
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  return unless_exhausted(error, memory, "cudaHostAlloc(&memory, bytes, cudaHostAllocPortable)");
}

void PinnedMemory::deallocate(void* memory) { STAGECOACH_CUDA(cudaFreeHost(memory)); }

const std::shared_ptr<Allocator>& pinned_allocator(Device device) {
  select(device);
  static const auto& pinned =
      *new std::shared_ptr<Allocator>(std::make_shared<Allocator>(std::make_unique<PinnedMemory>(), "pinned memory"));
  return pinned;
}

}  // namespace stagecoach::cuda
