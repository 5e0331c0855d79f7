#include "core/stream.h"

#include "core/cuda_backend.h"
#include "core/error.h"

namespace stagecoach {

void synchronize(const Stream& stream) {
  require_device(stream.device);
  if (stream.device.type == DeviceType::cuda) {
    cuda::synchronize(stream);  // a CPU stream is always empty
  }
}

void Event::record(const Stream& stream) { record(stream, false); }
void Event::record_time(const Stream& stream) { record(stream, true); }

void Event::record(const Stream& stream, bool timed) {
  if (stream.device.type == DeviceType::cpu) {
    require_device(stream.device);  // on a GPU, the mark checks this
  }
  stream_ = stream;
  time_ = std::chrono::steady_clock::now();
  mark_ = stream.device.type == DeviceType::cuda ? cuda::mark(stream, timed) : nullptr;
  recorded_ = true;
  timed_ = timed;
}

void Event::wait(const Stream& stream) const {
  STAGECOACH_CHECK(recorded_, "event: cannot let {} wait for an event that was never recorded; call record() first",
                   to_string(stream.device));
  if (mark_ != nullptr && stream.device.type == DeviceType::cuda) {
    cuda::wait(*mark_, stream);
  } else {
    synchronize();
  }
}

void Event::synchronize() const {
  STAGECOACH_CHECK(recorded_, "event: cannot synchronize with an event that was never recorded; call record() first");
  if (mark_ != nullptr) {
    cuda::synchronize(*mark_);
  }
}

double Event::seconds_between(const Event& start, const Event& end) {
  STAGECOACH_CHECK(start.timed_ && end.timed_, "event: seconds_between() needs two events recorded with record_time()");
  if (start.mark_ != nullptr && end.mark_ != nullptr) {
    return cuda::seconds_between(*start.mark_, *end.mark_);
  }
  return std::chrono::duration<double>(end.time_ - start.time_).count();
}

}  // namespace stagecoach
