#pragma once
/// @file
/// How a rank waits for others, over any transport, and the errors of waits that fail.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <stop_token>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// A thread that polls keeps its core for a while, because waking a thread takes longer than most waits. Polling is for
/// worlds with one core per rank.
enum class WaitMode { sleeping, polling };
inline constexpr std::chrono::milliseconds kLongestPoll(20);

using SteadyTime = std::chrono::steady_clock::time_point;

/// Returns when a wait of `timeout` that begins at `began` ends. The clock counts nanoseconds and overflows after 292
/// years, so timeouts above thirty years, infinity and NaN count as thirty years.
SteadyTime deadline_after(std::chrono::duration<double> timeout, SteadyTime began = std::chrono::steady_clock::now());

/// How long a wait has lasted. It begins anew when this process has stood still (Ctrl-Z, a debugger, a paused virtual
/// machine): other ranks may have stood still with it, and what they send needs time to arrive.
class WaitTime {
 public:
  /// A wait looks at the clock at least this often.
  static constexpr std::chrono::milliseconds kLongestNap{250};
  /// Where it could not for this long, the process stood still: no machine is so busy.
  static constexpr std::chrono::milliseconds kStandstill{2000};

  explicit WaitTime(SteadyTime now = std::chrono::steady_clock::now()) : began_(now), looked_(now) {}
  SteadyTime began() const { return began_; }
  /// Returns the time.
  SteadyTime look(SteadyTime now = std::chrono::steady_clock::now()) {
    began_ = now - looked_ > kStandstill ? now : began_;
    looked_ = now;
    return now;
  }

 private:
  SteadyTime began_;
  SteadyTime looked_;
};

/// How a thread waits, and what can end its waits early.
struct WaitPolicy {
  WaitMode mode = WaitMode::sleeping;
  std::stop_token stop = {};
  std::atomic<bool> may_spin = true;  ///< false while another thread of the rank needs the core
  /// When the other rank last showed that it is alive (CommunicatorControls::renew_waits).
  std::atomic<SteadyTime> renewed = {};

  bool polls() const { return mode == WaitMode::polling && may_spin; }
  /// Returns when a wait that began at `began` ends, unless it is renewed.
  SteadyTime deadline(SteadyTime began, std::chrono::duration<double> timeout) const {
    return deadline_after(timeout, std::max(began, renewed.load()));
  }
};

/// Returns the text with which the error of a wait begins; it names the rank and its call. It refers to a function that
/// must outlive it, so that a message without an error costs no memory for it.
class ErrorContext {
 public:
  template <class Text>
  requires(!std::same_as<Text, ErrorContext>) explicit(false) ErrorContext(const Text& text)
      : text_(&text),
        call_([](const void* function) -> std::string { return (*static_cast<const Text*>(function))(); }) {}
  std::string operator()() const { return call_(text_); }

 private:
  const void* text_;
  std::string (*call_)(const void*);
};

// Errors for waits that fail; `context` is that text.
/// Returns the error for a wait that ended because another rank failed. `who` names that rank and the
/// reason, such as "rank 2 has failed (…)".
CommError stopped(const std::string& context, const std::string& who);
/// Returns the error for a wait that the rank itself aborted.
CommError aborted(const std::string& context);
CommError no_answer(const std::string& context, std::chrono::duration<double> timeout);

}  // namespace stagecoach
