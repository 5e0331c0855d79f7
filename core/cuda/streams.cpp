#include "core/base/error.h"
#include "core/cuda/queues.h"
#include "core/cuda_backend.h"

namespace stagecoach::cuda {

class Mark {
 public:
  explicit Mark(const Stream& stream) : device_(stream.device) {
    const cudaStream_t queue = raw(stream);
    event_ = make_event();
    STAGECOACH_CUDA(cudaEventRecord(event_.get(), queue));
  }
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
