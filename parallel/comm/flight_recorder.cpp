#include "parallel/comm/flight_recorder.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

#include "core/base/atomic_file.h"

namespace stagecoach {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string line_of(const FlightRecorder::Event& event) {
  std::string line = fmt::format("{{\"number\":{},\"operation\":\"{}\",\"group\":\"{}\",\"begin\":{:.6f},\"end\":{}",
                                 event.number, event.operation, event.group, event.begin,
                                 event.end == 0 ? "null" : fmt::format("{:.6f}", event.end));
  const auto out = std::back_inserter(line);
  if (event.peer != FlightRecorder::kNobody) {
    fmt::format_to(out, ",\"peer\":{},\"tag\":{}", event.peer, event.tag);
  }
  fmt::format_to(out, ",\"type\":\"{}{}\",\"in\":\"{}\"}}\n", name_of(event.dtype), to_string(event.shape),
                 to_string(event.work));
  return line;
}

}  // namespace

std::uint64_t FlightRecorder::begin(Event event) {
  event.work = current_work();
  event.begin = seconds_since_1970();
  const std::lock_guard lock(mutex_);
  event.number = next_++;
  if (events_.size() < kEvents) {
    events_.push_back(std::move(event));
  } else {
    events_[event.number % kEvents] = std::move(event);
  }
  return next_ - 1;
}

void FlightRecorder::end(std::uint64_t number) {
  const double now = seconds_since_1970();
  const std::lock_guard lock(mutex_);
  if (number + kEvents >= next_) {
    events_[number % kEvents].end = now;
  }
}

std::string FlightRecorder::to_jsonl() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::uint64_t number = next_ - events_.size(); number < next_; ++number) {
    text += line_of(events_[number % kEvents]);
  }
  return text;
}

void FlightRecorder::leave_in(const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  folder_ = folder;
  identity_ = identity_of(folder);
}

void FlightRecorder::leave(int rank) const noexcept try {
  const std::string text = to_jsonl();
  const std::lock_guard lock(mutex_);
  if (identity_ && identity_ == identity_of(folder_)) {
    AtomicFile file(folder_ / fmt::format("flight_{}.jsonl", rank));
    file.write(text);
    file.commit();
  }
} catch (const std::exception&) {
}

Recorded::Recorded(FlightRecorder& recorder, FlightRecorder::Event event)
    : recorder_(recorder), number_(recorder.begin(std::move(event))), exceptions_before_(std::uncaught_exceptions()) {}

Recorded::~Recorded() {
  if (std::uncaught_exceptions() == exceptions_before_) {
    recorder_.end(number_);
  }
}

}  // namespace stagecoach
