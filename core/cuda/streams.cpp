#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/cuda/queues.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {
namespace {

/// The events of a GPU that no mark uses any more: to make and destroy one takes longer than to record it.
class Events {
 public:
  static Events& of(Device device) {
    static auto& all = *new std::array<Events, kMaxDevices>;  // never destroyed: marks may outlive static objects
    return all[static_cast<std::size_t>(device.index)];
  }
  EventHandle take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return make_event();
    }
    EventHandle event = std::move(free_.back());
    free_.pop_back();
    return event;
  }
  void put(EventHandle event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(event));
  }

 private:
  std::mutex mutex_;
  std::vector<EventHandle> free_;
};

}  // namespace

class Mark {
 public:
  explicit Mark(const Stream& stream) : device_(stream.device) {
    const cudaStream_t queue = raw(stream);
    event_ = Events::of(device_).take();
    STAGECOACH_CUDA(cudaEventRecord(event_.get(), queue));
  }
  /// The event may be recorded again at once: a stream that waits for it waits for the point that it marked then.
  ~Mark() { Events::of(device_).put(std::move(event_)); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  cudaEvent_t event() const { return event_.get(); }
  Device device() const { return device_; }

 private:
  Device device_;
  EventHandle event_;
};

void synchronize(const Stream& stream) { STAGECOACH_CUDA(cudaStreamSynchronize(raw(stream))); }

std::shared_ptr<Mark> mark(const Stream& stream) { return std::make_shared<Mark>(stream); }

void wait(const Mark& mark, const Stream& stream) {
  STAGECOACH_CUDA(cudaStreamWaitEvent(raw(stream), mark.event(), 0));
}

void synchronize(const Mark& mark) {
  select(mark.device());
  STAGECOACH_CUDA(cudaEventSynchronize(mark.event()));
}

void copy_async(void* to, Device to_device, const void* from, Device from_device, std::size_t bytes,
                const std::vector<Event>& after) {
  STAGECOACH_CHECK(!is_recording(),
                   "copy_async: cannot copy while this thread records a graph; copy before the recording");
  const Stream copies{to_device.type == DeviceType::cuda ? to_device : from_device, Stream::kCopies};
  for (const Event& event : after) {
    event.wait(copies);
  }
  STAGECOACH_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, raw(copies)));
}

}  // namespace stagecoach::cuda
