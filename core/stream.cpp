#include "core/stream.h"

#include "core/error.h"

namespace stagecoach {

void synchronize(const Stream& stream) {
  require_device(stream.device);  // a CPU stream is always drained
}

void Event::record(const Stream& stream) {
  require_device(stream.device);
  stream_ = stream;
  time_ = std::chrono::steady_clock::now();
  recorded_ = true;
}

void Event::wait(const Stream& stream) const {
  STAGECOACH_CHECK(recorded_, "event: {} waits for an event that was never recorded", to_string(stream.device));
}

void Event::synchronize() const {
  STAGECOACH_CHECK(recorded_, "event: synchronize on an event that was never recorded");
}

double Event::seconds_between(const Event& start, const Event& end) {
  STAGECOACH_CHECK(start.recorded_ && end.recorded_, "event: seconds_between needs two recorded events");
  return std::chrono::duration<double>(end.time_ - start.time_).count();
}

}  // namespace stagecoach
