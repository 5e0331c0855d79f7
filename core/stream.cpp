#include "core/stream.h"

#include "core/asynchronous.h"
#include "core/cuda_backend.h"
#include "core/error.h"
#include "core/stream_order.h"

namespace stagecoach {

void synchronize(const Stream& stream) {
  require_device(stream.device);
  if (stream.device.type == DeviceType::cuda) {
    cuda::synchronize(stream);
  } else if (is_asynchronous(stream.device)) {
    wait_for_point(*mark_point(stream, false));
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
  point_ = is_asynchronous(stream.device) ? mark_point(stream, timed) : nullptr;
  recorded_ = true;
  timed_ = timed;
}

void Event::wait(const Stream& stream) const {
  STAGECOACH_CHECK(recorded_, "event: cannot let {} wait for an event that was never recorded; call record() first",
                   to_string(stream.device));
  if (mark_ != nullptr && stream.device.type == DeviceType::cuda) {
    cuda::wait(*mark_, stream);
  } else if (point_ != nullptr && is_asynchronous(stream.device)) {
    wait_in_stream(*point_, stream);
  } else {
    synchronize();
  }
}

void Event::synchronize() const {
  STAGECOACH_CHECK(recorded_, "event: cannot synchronize with an event that was never recorded; call record() first");
  if (mark_ != nullptr) {
    cuda::synchronize(*mark_);
  } else if (point_ != nullptr) {
    wait_for_point(*point_);
  }
}

double Event::seconds_between(const Event& start, const Event& end) {
  STAGECOACH_CHECK(start.timed_ && end.timed_, "event: seconds_between() needs two events recorded with record_time()");
  if (start.mark_ != nullptr && end.mark_ != nullptr) {
    return cuda::seconds_between(*start.mark_, *end.mark_);
  }
  const auto time_of = [](const Event& event) {
    event.synchronize();
    return event.point_ == nullptr ? event.time_ : event.point_->reached;
  };
  return std::chrono::duration<double>(time_of(end) - time_of(start)).count();
}

}  // namespace stagecoach
