// The memory and threads of the CPU devices: what the core needs from the CPU backend.

#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "core/allocator.h"
#include "core/base/error.h"
#include "core/base/memory_limits.h"
#include "core/base/system.h"
#include "core/base/throw_if.h"
#include "core/parallel_for.h"

namespace stagecoach {
namespace {

/// Returns whether the machine has this much memory left, if need be after the C library has given back what was freed.
bool has_room_for(std::size_t bytes) {
  const auto has_room = [bytes] { return bytes <= system::free_memory().value_or(bytes); };
  if (has_room()) {
    return true;
  }
  system::give_back_freed_memory();
  return has_room();
}

class HeapMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    if (!has_room_for(bytes)) {  // the kernel would promise it all the same, and kill the program that uses it
      return nullptr;
    }
    void* memory = std::aligned_alloc(kAlignment, bytes);  // not `new`: the allocator retries after a failure
    if (memory != nullptr) {
      system::prefer_large_pages(memory, bytes);
    }
    return memory;
  }
  void deallocate(void* memory) override { std::free(memory); }
  std::optional<std::size_t> free_bytes() const override { return available_memory(); }

 private:
  static constexpr std::size_t kAlignment = Allocator::kSegmentBytes;  // the size of a large page
};

/// The resources of one logical CPU device.
struct CpuDevice {
  explicit CpuDevice(int index)
      : memory(std::make_shared<Allocator>(std::make_unique<HeapMemory>(), to_string(Device{DeviceType::cpu, index}))) {
  }
  std::shared_ptr<Allocator> memory;
  ThreadPool pool;
};

CpuDevice& device_at(int index) {
  // Never destroyed: tensors with static storage duration may be destroyed after any static object here.
  static auto& devices = *new std::array<std::unique_ptr<CpuDevice>, kMaxDevices>;
  static auto& made = *new std::array<std::once_flag, kMaxDevices>;
  const auto i = static_cast<std::size_t>(index);
  std::call_once(made[i], [&] { devices[i] = std::make_unique<CpuDevice>(index); });
  return *devices[i];
}

}  // namespace

namespace cpu {

const std::shared_ptr<Allocator>& allocator(Device device) {
  require_device(device);
  return device_at(device.index).memory;
}

}  // namespace cpu

ThreadPool& thread_pool(Device device) {
  require_device(device);
  STAGECOACH_CHECK(device.type == DeviceType::cpu, "thread pool: expected a CPU, got {}", to_string(device));
  return device_at(device.index).pool;
}

int threads(Device device) { return thread_pool(device).threads(); }

void set_threads(Device device, int count) {
  throw_if<UsageError>(count < 1 || count > kMaxThreads, "threads of {}: expected 1 to {}, got {}", to_string(device),
                       kMaxThreads, count);
  thread_pool(device).resize(count);
}

}  // namespace stagecoach
