#include "core/cuda/queues.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/cuda/memory.h"
#include "core/cuda_backend.h"
#include "core/tensor.h"

namespace stagecoach::cuda {
namespace {

struct Queues {
  explicit Queues(Device device)
      : compute(make_stream()),
        copies(make_stream()),
        memory(std::make_shared<Allocator>(std::make_unique<DeviceMemory>(device), to_string(device))) {}
  StreamHandle compute;
  StreamHandle copies;
  std::shared_ptr<Allocator> memory;
};

struct AllQueues {
  std::mutex mutex;
  std::map<Device, std::unique_ptr<Queues>> made;
};

AllQueues& all_queues() {
  // Never destroyed: tensors with static storage duration may be destroyed after any static object here.
  static auto& all = *new AllQueues;
  return all;
}

Queues& find_queues(Device device) {
  auto& [mutex, made] = all_queues();
  const std::lock_guard lock(mutex);
  const auto found = made.find(device);
  if (found == made.end()) {
    stagecoach::require_device(device);
  }
  select(device);
  return found != made.end() ? *found->second : *made.emplace(device, std::make_unique<Queues>(device)).first->second;
}

/// Every operation asks for them, and a thread mostly works on one device: it remembers that one, and takes no lock.
Queues& queues(Device device) {
  thread_local std::pair<Device, Queues*> last;
  if (last.second == nullptr || last.first != device) {
    last = {device, &find_queues(device)};
  }
  select(device);
  return *last.second;
}

/// What this thread uses while it records.
struct RecordingResources {
  Device device = {};
  cudaStream_t stream = nullptr;
  std::shared_ptr<Allocator> memory = {};
  bool is_of(Device other) const { return memory != nullptr && device == other; }
};
thread_local RecordingResources recording;

}  // namespace

void select(Device device) {
  thread_local int selected = -1;
  if (selected != device.index) {
    STAGECOACH_CUDA(cudaSetDevice(device.index));
    selected = device.index;
  }
}

cudaStream_t compute_stream(Device device) {
  return recording.is_of(device) ? recording.stream : queues(device).compute.get();
}

cudaStream_t raw(const Stream& stream) {
  STAGECOACH_CHECK(stream.id == Stream::kCompute || stream.id == Stream::kCopies,
                   "stream {} of {} does not exist: expected {} (compute) or {} (copies)", stream.id,
                   to_string(stream.device), Stream::kCompute, Stream::kCopies);
  return stream.id == Stream::kCompute ? compute_stream(stream.device) : queues(stream.device).copies.get();
}

const std::shared_ptr<Allocator>& allocator(Device device) { return queues(device).memory; }

std::shared_ptr<Allocator> allocator_for_tensors(Device device) {
  return recording.is_of(device) ? recording.memory : cuda::allocator(device);
}

bool is_of_recording(const Tensor& tensor) {
  const std::shared_ptr<Allocator>& memory = tensor.storage()->block()->allocator;
  auto& [mutex, made] = all_queues();
  const std::lock_guard lock(mutex);
  return std::none_of(made.begin(), made.end(), [&](const auto& queues) { return queues.second->memory == memory; });
}

bool is_recording() { return recording.memory != nullptr; }

RecordOn::RecordOn(Device device, cudaStream_t stream, std::shared_ptr<Allocator> memory) {
  STAGECOACH_CHECK(!is_recording(), "cuda: this thread is already recording a graph; end that recording first");
  recording = {device, stream, std::move(memory)};
}

RecordOn::~RecordOn() { recording = {}; }

}  // namespace stagecoach::cuda
