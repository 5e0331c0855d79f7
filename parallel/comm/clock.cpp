#include "parallel/comm/clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <mutex>

#include "core/allocator.h"
#include "core/base/throw_if.h"
#include "core/kernel_meter.h"
#include "core/stream.h"

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

/// Counts what the kernels of a thread would take on a named device.
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
  double now() noexcept override { return static_cast<double>(picoseconds_) / kPicosecondsPerSecond; }
  std::unique_ptr<Clock> another() const override {
    return std::make_unique<ModelledClock>(network(), device_, model_);
  }

 private:
  void add(Device device, const KernelCost& cost) override {
    if (waits_ == 0) {
      picoseconds_ += model_.picoseconds(cost);
      allocator(device).note_workspace(static_cast<std::size_t>(cost.on(model_.backend).workspace_bytes));
    }
  }
  void stop() override { ++waits_; }
  double resume(double earliest) noexcept override {
    --waits_;
    if (earliest > now()) {
      picoseconds_ = std::llround(earliest * kPicosecondsPerSecond);
    }
    return now();
  }

  static constexpr double kPicosecondsPerSecond = 1e12;
  Device device_;
  DeviceModel model_;
  std::int64_t picoseconds_ = 0;
  int waits_ = 0;  // that have begun and not ended
};

}  // namespace

std::string to_string(ClockKind kind) {
  const char* const names[] = {"wall", "virtual", "modelled"};
  return names[static_cast<std::size_t>(kind)];
}

Waiting::Waiting(Clock& clock) : clock_(clock), began_(clock.now()), until_(began_) { clock_.stop(); }

void Waiting::until_all(double latest, double seconds) {
  if (clock_.kind() != ClockKind::wall) {
    clock_.waited_for_stragglers_ += std::max(latest - began_, 0.0);
  }
  until(latest + seconds);
}

Waiting::~Waiting() { clock_.waited_ += clock_.resume(until_) - began_; }

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
