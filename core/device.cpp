#include "core/device.h"

#include <sys/mman.h>

#include <array>
#include <charconv>
#include <memory>
#include <mutex>
#include <new>

#include "core/allocator.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/parallel_for.h"

namespace stagecoach {
namespace {

class HeapMemory final : public MemorySource {
 public:
  void* acquire(std::size_t bytes) override {
    void* memory = ::operator new(bytes, kAlignment, std::nothrow);
#ifdef MADV_HUGEPAGE
    if (memory != nullptr) {
      ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: fewer, larger pages are found faster
    }
#endif
    return memory;
  }
  void give_back(void* memory) override { ::operator delete(memory, kAlignment); }

 private:
  static constexpr std::align_val_t kAlignment{Allocator::kSegmentBytes};  // that of a large page
};

/// What one logical CPU device owns.
struct CpuDevice {
  explicit CpuDevice(int index) : memory(std::make_unique<HeapMemory>(), to_string(Device{DeviceType::cpu, index})) {}
  Allocator memory;
  ThreadPool pool;
};

CpuDevice& cpu_device(int index) {
  // Never destroyed: tensors in static storage may outlive any order of destruction that we could choose.
  static auto& devices = *new std::array<std::unique_ptr<CpuDevice>, kMaxDevices>;
  static auto& made = *new std::array<std::once_flag, kMaxDevices>;
  const auto i = static_cast<std::size_t>(index);
  std::call_once(made[i], [&] { devices[i] = std::make_unique<CpuDevice>(index); });
  return *devices[i];
}

}  // namespace

std::string to_string(Device device) {
  return (device.type == DeviceType::cpu ? "cpu:" : "cuda:") + std::to_string(device.index);
}

Device parse_device(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view type = text.substr(0, colon);
  Device device;
  device.type = type == "cuda" ? DeviceType::cuda : DeviceType::cpu;
  bool good = type == "cpu" || type == "cuda";
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    good = good && error == std::errc() && end == digits.data() + digits.size() && device.index >= 0 &&
           digits.front() != '-';
  }
  if (!good || device.index >= kMaxDevices) {
    throw UsageError(fmt::format("device '{}' is unknown; use cpu, cuda, or one with an index below {} such as cuda:1",
                                 text, kMaxDevices));
  }
  return device;
}

void require_device(Device device) {
  if (device.type == DeviceType::cuda) {
    cuda::require_device(device.index);
  } else if (device.index < 0 || device.index >= kMaxDevices) {
    throw UsageError(fmt::format("{} does not exist: indices go from 0 to {}", to_string(device), kMaxDevices - 1));
  }
}

Allocator& allocator(Device device) {
  require_device(device);
  return device.type == DeviceType::cuda ? cuda::allocator(device.index) : cpu_device(device.index).memory;
}

ThreadPool& thread_pool(Device device) {
  require_device(device);
  STAGECOACH_CHECK(device.type == DeviceType::cpu, "thread pool: {} has none", to_string(device));
  return cpu_device(device.index).pool;
}

int threads(Device device) { return thread_pool(device).threads(); }

void set_threads(Device device, int count) {
  if (count < 1 || count > kMaxThreads) {
    throw UsageError(
        fmt::format("{} threads for {}: at least 1 and at most {} can be used", count, to_string(device), kMaxThreads));
  }
  thread_pool(device).resize(count);
}

}  // namespace stagecoach
