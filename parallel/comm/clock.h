#pragma once
/// @file
/// The clock of a rank: real time, virtual time, or modelled time.
///
/// With fewer cores than ranks the wall clock cannot show a speed-up, because ranks wait for cores. The virtual clock
/// leaves that waiting out. It advances by the time that this rank's own work takes, and a message carries the time at
/// which it arrives. The work is real and its time is measured; only the concurrency of ranks and links is modelled.
///
/// The modelled clock measures nothing. It advances by what a named device would take for each kernel that this rank
/// calls (core/device_model.h), so all times are computed, and the same on every machine. One thread can also give its
/// calls to several devices that work beside it (modelled_streams.h); device_loader.h says what data take.

#include <chrono>
#include <memory>
#include <string>

#include "core/device.h"
#include "core/device_model.h"
#include "parallel/comm/network.h"

namespace stagecoach {

enum class ClockKind { wall, virtual_time, modelled };

/// Returns "wall", "virtual" or "modelled".
std::string to_string(ClockKind kind);

/// The clock of one thread of a rank. Only that thread uses it.
class Clock {
 public:
  virtual ~Clock() = default;
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual ClockKind kind() const = 0;
  /// Returns the seconds since the world began.
  virtual double now() noexcept = 0;
  /// Returns the seconds from `begin` to `end`, two times of this clock. A modelled one has whole picoseconds between
  /// them, so what passes does not depend on how long the clock has been running: floating-point times do, in their
  /// last digits.
  double between(double begin, double end) const;
  /// Returns the links that messages take. For the wall clock they take no time, because real messages take real time.
  const Network& network() const { return network_; }

  /// Returns a clock for another thread of this rank; it counts that thread's work. That thread must make the call.
  virtual std::unique_ptr<Clock> another() const = 0;

  /// Returns the total time in seconds that this rank has waited for others.
  double waited() const { return waited_; }
  /// Returns the part of it for which collectives waited for the last of their ranks to begin. A wall clock cannot tell
  /// that from the time of their messages, and returns 0.
  double waited_for_stragglers() const { return waited_for_stragglers_; }
  /// Marks that the ranks now meet to sum the norm of all gradients.
  void mark_norm() { worked_before_norm_ = now() - waited_; }
  /// Returns the seconds of this rank's own work, waits excluded, at the last such mark.
  double worked_before_norm() const { return worked_before_norm_; }

 protected:
  explicit Clock(const Network& network) : network_(network) {}

 private:
  friend class Waiting;
  /// Begins a wait. All but a wall clock do not count the time until the wait ends as this rank's work.
  virtual void stop() = 0;
  /// Ends the wait and returns the time; all but a wall clock continue no earlier than at `earliest`.
  virtual double resume(double earliest) noexcept = 0;

  Network network_;
  double waited_ = 0;
  double waited_for_stragglers_ = 0;
  double worked_before_norm_ = 0;
};

/// Marks the rank as waiting for others until the end of the scope. What it computes meanwhile takes no time, except by
/// the wall clock.
class Waiting {
 public:
  explicit Waiting(Clock& clock);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  /// Records that what was waited for arrived at `time`: all but a wall clock continue from the later of `time` and
  /// the time at which they stopped.
  void until(double time) { until_ = time > until_ ? time : until_; }
  /// Records that a collective takes `seconds` from the time `latest`, when the last of its ranks began.
  void until_all(double latest, double seconds);

 private:
  Clock& clock_;
  double began_;
  double until_;
};

/// Makes the clock of the calling thread, for a rank on `device`. It begins at 0, a wall clock at the time since
/// `start`. A virtual clock counts the processor time of the calling thread. On a GPU, which ranks may share, one rank
/// computes at a time, and the clock counts the real time that passes meanwhile. A modelled clock counts what the
/// thread's kernels cost on `model`, from now on also as the device's memory. Throws UsageError for a modelled clock of
/// a GPU, which would not run the modelled device's kernels anyway.
std::unique_ptr<Clock> make_clock(ClockKind kind, Device device, const Network& network, const DeviceModel& model = {},
                                  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now());

}  // namespace stagecoach
