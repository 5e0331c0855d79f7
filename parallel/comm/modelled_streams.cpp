#include "parallel/comm/modelled_streams.h"

#include <algorithm>
#include <cmath>

#include "core/allocator.h"
#include "core/base/error.h"
#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;

std::int64_t picoseconds(double seconds) { return std::llround(seconds * kPicosecondsPerSecond); }
double seconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) / kPicosecondsPerSecond; }

}  // namespace

thread_local ModelledStreams* ModelledStreams::current_ = nullptr;

ModelledStreams::ModelledStreams(const std::vector<Device>& devices, const Link& link, int copy_stream,
                                 bool synchronous)
    : link_(link), copy_stream_(copy_stream), is_synchronous_(synchronous) {
  STAGECOACH_CHECK(current_ == nullptr, "modelled streams: expected one set of devices per thread, got a second one");
  for (const Device device : devices) {
    streams_[device.index] = {};
    allocator(device).model_workspace();
  }
  current_ = this;
}

ModelledStreams::~ModelledStreams() { current_ = nullptr; }

ModelledStreams* ModelledStreams::of(Device device) {
  return current_ != nullptr && current_->has(device) ? current_ : nullptr;
}

std::int64_t ModelledStreams::run(const char* name, int index, int stream, std::int64_t begin, std::int64_t duration) {
  Streams& streams = streams_.at(index);
  std::int64_t& free = streams.free.at(static_cast<std::size_t>(stream));
  begin = std::max(begin, free);
  free = begin + duration;
  streams.busy += stream == Stream::kCompute ? duration : 0;
  if (Trace* trace = Trace::current()) {
    trace->add(Trace::Event{name, "device", Trace::kStreams + 2 * index + stream, seconds(begin), seconds(free),
                            Trace::label_of_this_thread()});
  }
  return free;
}

std::int64_t ModelledStreams::launch(const char* name, Device device, std::int64_t now, std::int64_t duration) {
  return run(name, device.index, Stream::kCompute, now, duration);
}

std::int64_t ModelledStreams::copy(Device from, Device to, double bytes, std::int64_t now,
                                   double host_bytes_per_second) {
  const bool leaves = has(from);
  const Link link = leaves && has(to) ? link_ : Link{.latency = 0, .bytes_per_second = host_bytes_per_second};
  const std::int64_t ready = leaves ? streams_.at(from.index).free[Stream::kCompute] : 0;
  const std::int64_t through = run("copy", leaves ? from.index : to.index, copy_stream_, std::max(now, ready),
                                   picoseconds(link.transfer_seconds(bytes)));
  const std::int64_t arrival = through + picoseconds(link.latency);
  if (has(to)) {
    std::int64_t& free = streams_.at(to.index).free[Stream::kCompute];
    free = std::max(free, arrival);
  }
  return arrival;
}

std::int64_t ModelledStreams::end(Device device) const { return streams_.at(device.index).free[Stream::kCompute]; }

std::int64_t ModelledStreams::end() const {
  std::int64_t last = 0;
  for (const auto& [index, streams] : streams_) {
    last = std::max({last, streams.free[Stream::kCompute], streams.free[Stream::kCopies]});
  }
  return last;
}

double ModelledStreams::busy_seconds(Device device) const { return seconds(streams_.at(device.index).busy); }

}  // namespace stagecoach
