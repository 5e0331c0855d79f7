#include "parallel/comm/clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <mutex>
#include <optional>

#include "core/allocator.h"
#include "core/base/throw_if.h"
#include "core/kernel_meter.h"
#include "core/stream.h"
#include "parallel/comm/modelled_streams.h"

namespace stagecoach {

namespace {

using TimePoint = std::chrono::steady_clock::time_point;

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class WallClock final : public Clock {
 public:
  explicit WallClock(TimePoint start) : Clock(Network()), start_(start) {}
  ClockKind kind() const override { return ClockKind::wall; }
  double now() noexcept override { return seconds_since(start_); }
  std::unique_ptr<Clock> another() const override { return std::make_unique<WallClock>(start_); }

 private:
  void stop() override {}
  double resume(double) noexcept override { return now(); }

  TimePoint start_;
};

/// Returns the processor time of this thread in seconds.
double thread_seconds() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // fails only on systems without this clock; Linux has it
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Counts a thread's own processor time, without the work of other threads on the same core.
class ThreadClock final : public Clock {
 public:
  explicit ThreadClock(const Network& network) : Clock(network), offset_(-thread_seconds()) {}
  ClockKind kind() const override { return ClockKind::virtual_time; }
  double now() noexcept override { return thread_seconds() + offset_; }
  std::unique_ptr<Clock> another() const override { return std::make_unique<ThreadClock>(network()); }

 private:
  void stop() override {}
  double resume(double earliest) noexcept override {
    offset_ = earliest - thread_seconds();
    return earliest;
  }

  double offset_;  // virtual time minus the thread's processor time
};

/// Counts a GPU's work. Between two waits a rank has the GPU to itself, so the time that passes is its own.
class GpuClock final : public Clock {
 public:
  GpuClock(const Network& network, Device device) : Clock(network), device_(device), turn_(turns_of(device)) {
    begin(0);
  }
  ClockKind kind() const override { return ClockKind::virtual_time; }
  double now() noexcept override {
    try {
      synchronize({device_, Stream::kCompute});
    } catch (const std::exception&) {
      // A failed device reports its error at the next call that needs it.
    }
    return began_at_ + seconds_since(began_);
  }
  std::unique_ptr<Clock> another() const override { return std::make_unique<GpuClock>(network(), device_); }

 private:
  static std::mutex& turns_of(Device device) {
    static std::array<std::mutex, kMaxDevices> turns;
    return turns[static_cast<std::size_t>(device.index)];
  }
  void begin(double time) {
    began_at_ = time;
    began_ = std::chrono::steady_clock::now();
  }
  void stop() override { turn_.unlock(); }
  double resume(double earliest) noexcept override {
    turn_.lock();
    begin(earliest);
    return earliest;
  }

  Device device_;
  std::unique_lock<std::mutex> turn_;
  TimePoint began_;
  double began_at_ = 0;
};

/// Counts what the kernels of a thread would take on a named device. If the thread gives them to devices that work
/// beside it (ModelledStreams), counts what it takes to launch them, and its waits.
class ModelledClock final : public Clock, private KernelMeter {
 public:
  ModelledClock(const Network& network, Device device, const DeviceModel& model)
      : Clock(network), device_(device), model_(model) {
    throw_if<UsageError>(
        device.type == DeviceType::cuda,
        "clock `modelled` computes the time of a device that need not exist: it works on device `cpu`, "
        "got {}",
        to_string(device));
    STAGECOACH_CHECK(model.bytes_per_second > 0, "modelled clock: expected a device model, got none");
    allocator(device).model_workspace();
  }
  ClockKind kind() const override { return ClockKind::modelled; }
  double now() noexcept override { return seconds(picoseconds_); }
  std::unique_ptr<Clock> another() const override {
    return std::make_unique<ModelledClock>(network(), device_, model_);
  }

 private:
  void add(const char* name, Device device, const KernelCost& cost) override {
    if (waits_ > 0) {
      return;
    }
    allocator(device).note_workspace(static_cast<std::size_t>(cost.on(model_.backend).workspace_bytes));
    if (ModelledStreams* streams = ModelledStreams::of(device)) {
      launch(cost);
      wait_if_synchronous(streams->launch(name, device, picoseconds_, model_.picoseconds(cost)));
    } else {
      picoseconds_ += model_.picoseconds(cost);
    }
  }
  void copy(Device from, Device to, const KernelCost& cost) override {
    ModelledStreams* streams = ModelledStreams::of(from);
    const bool to_host = streams != nullptr && ModelledStreams::of(to) == nullptr;
    streams = streams == nullptr ? ModelledStreams::of(to) : streams;
    if (streams == nullptr) {
      return add("copy", from, cost);
    }
    if (waits_ > 0) {
      return;
    }
    launch(cost);
    const auto bytes = static_cast<double>(cost.bytes_read);
    const std::int64_t arrival = streams->copy(from, to, bytes, picoseconds_, model_.host_bytes_per_second);
    to_host ? wait_until(arrival) : wait_if_synchronous(arrival);
  }
  void wait_for(std::optional<Device> device) override {
    if (const ModelledStreams* streams = device ? ModelledStreams::of(*device) : ModelledStreams::current()) {
      wait_until(device ? streams->end(*device) : streams->end());
    }
  }
  void take_batch(std::int64_t bytes) override {
    // Where devices are not the rank's own, the copy to one is a call of the controller's.
    const bool is_copied = ModelledStreams::current() == nullptr;
    const double seconds_per_byte =
        1 / model_.load_bytes_per_second + (is_copied ? 1 / model_.host_bytes_per_second : 0);
    loading_since_ += picoseconds(static_cast<double>(bytes) * seconds_per_byte);
    Waiting(*this).until(seconds(loading_since_));
    loading_since_ = picoseconds_;
  }
  /// The host is busy for each kernel that it launches.
  void launch(const KernelCost& cost) {
    picoseconds_ += cost.on(model_.backend).launches * picoseconds(model_.host_launch_seconds);
  }
  void wait_until(std::int64_t time) { picoseconds_ = std::max(picoseconds_, time); }
  void wait_if_synchronous(std::int64_t end) {
    if (ModelledStreams::current()->is_synchronous()) {
      wait_until(end);
    }
  }
  void stop() override { ++waits_; }
  double resume(double earliest) noexcept override {
    --waits_;
    if (earliest > now()) {
      picoseconds_ = picoseconds(earliest);
    }
    return now();
  }

  static constexpr double kPicosecondsPerSecond = 1e12;
  static std::int64_t picoseconds(double seconds) { return std::llround(seconds * kPicosecondsPerSecond); }
  static double seconds(std::int64_t picoseconds) { return static_cast<double>(picoseconds) / kPicosecondsPerSecond; }

  Device device_;
  DeviceModel model_;
  std::int64_t picoseconds_ = 0;
  int waits_ = 0;                   // that have begun and not ended
  std::int64_t loading_since_ = 0;  // when the previous batch was taken
};

}  // namespace

std::string to_string(ClockKind kind) {
  const char* const names[] = {"wall", "virtual", "modelled"};
  return names[static_cast<std::size_t>(kind)];
}

double Clock::between(double begin, double end) const {
  constexpr double kPicosecondsPerSecond = 1e12;
  const double passed = end - begin;
  return kind() == ClockKind::modelled ? std::round(passed * kPicosecondsPerSecond) / kPicosecondsPerSecond : passed;
}

Waiting::Waiting(Clock& clock) : clock_(clock), began_(clock.now()), until_(began_) { clock_.stop(); }

void Waiting::until_all(double latest, double seconds) {
  if (clock_.kind() != ClockKind::wall) {
    clock_.waited_for_stragglers_ += std::max(clock_.between(began_, latest), 0.0);
  }
  until(latest + seconds);
}

Waiting::~Waiting() { clock_.waited_ += clock_.between(began_, clock_.resume(until_)); }

std::unique_ptr<Clock> make_clock(ClockKind kind, Device device, const Network& network, const DeviceModel& model,
                                  TimePoint start) {
  if (kind == ClockKind::wall) {
    return std::make_unique<WallClock>(start);
  }
  if (kind == ClockKind::modelled) {
    return std::make_unique<ModelledClock>(network, device, model);
  }
  if (device.type == DeviceType::cuda) {
    return std::make_unique<GpuClock>(network, device);
  }
  return std::make_unique<ThreadClock>(network);
}

}  // namespace stagecoach
