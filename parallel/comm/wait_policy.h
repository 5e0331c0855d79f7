#pragma once
/// @file
/// How a rank waits for others, over any transport, and the errors of waits that fail.

#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// A thread that polls keeps its core for a while, because waking a thread takes longer than most waits. Polling is for
/// worlds with one core per rank.
enum class WaitMode { sleeping, polling };
inline constexpr std::chrono::milliseconds kLongestPoll(20);

/// How a thread waits, and what can end its waits early.
struct WaitPolicy {
  WaitMode mode = WaitMode::sleeping;
  std::stop_token stop = {};
  std::atomic<bool> may_spin = true;  ///< false while another thread of the rank needs the core

  bool polls() const { return mode == WaitMode::polling && may_spin; }
};

/// Returns when a wait of `timeout` that begins now ends. The clock counts nanoseconds and overflows after 292 years,
/// so timeouts above thirty years, infinity and NaN count as thirty years.
std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<double> timeout);

// Errors for waits that fail; `context` names the rank and its call.
/// Returns the error for a wait that ended because another rank failed. `who` names that rank and the
/// reason, such as "rank 2 has failed (…)".
CommError stopped(const std::string& context, const std::string& who);
/// Returns the error for a wait that the rank itself aborted.
CommError aborted(const std::string& context);
CommError no_answer(const std::string& context, std::chrono::duration<double> timeout);

}  // namespace stagecoach
