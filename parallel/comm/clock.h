#pragma once
/// @file
/// What time it is on a rank.
///
/// With fewer cores than ranks the wall clock can show no speed-up: ranks wait for cores. The virtual clock leaves that
/// out. It advances by the time that this rank's own work takes, and a message carries the time at which it arrives.
/// The work is real and its time is measured; only how ranks and links run beside each other is modelled.

#include <chrono>
#include <memory>
#include <string>

#include "core/device.h"
#include "parallel/comm/link.h"

namespace stagecoach {

enum class ClockKind { wall, virtual_time };

/// "wall" or "virtual".
std::string to_string(ClockKind kind);

/// Of one thread of a rank. Only that uses it.
class Clock {
 public:
  virtual ~Clock() = default;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual ClockKind kind() const = 0;
  /// Seconds since the world began.
  virtual double now() noexcept = 0;
  /// The link that messages take; on the wall clock one without latency, as real messages take real time.
  const Link& link() const { return link_; }

  /// The clock of another thread of this rank, which makes and uses it: it counts that thread's work.
  virtual std::unique_ptr<Clock> another() const = 0;

  /// Seconds, in all, in which this rank waited for others.
  double waited() const { return waited_; }

 protected:
  explicit Clock(const Link& link) : link_(link) {}

 private:
  friend class Waiting;
  /// A wait begins; the work that passes until it ends is not this rank's.
  virtual void stop() = 0;
  /// It has ended; no earlier than `earliest`, by a virtual clock. Returns the time.
  virtual double go_on(double earliest) noexcept = 0;

  Link link_;
  double waited_ = 0;
};

/// A rank waits for others until the end of the scope.
class Waiting {
 public:
  explicit Waiting(Clock& clock);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  /// What was waited for came at `time`: a virtual clock goes on from there, or from where it stopped if that is later.
  void until(double time) { until_ = time > until_ ? time : until_; }

 private:
  Clock& clock_;
  double began_;
  double until_;
};

/// Real time since `start`, shared by clocks that were made of it.
class WallTime;
std::shared_ptr<const WallTime> start_wall_time(
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now());

/// The clock of a rank on `device`; it begins at 0, or, by the wall, at the time since `start`. A virtual clock takes
/// the processor time of the calling thread; on a GPU, where ranks may share the device, one rank computes at a time
/// and the clock takes what passes meanwhile.
std::unique_ptr<Clock> make_clock(ClockKind kind, Device device, const Link& link,
                                  const std::shared_ptr<const WallTime>& start);

}  // namespace stagecoach
