#pragma once
/// @file
/// How a rank waits for others, over any transport, and the errors of waits that fail.

#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// A thread that polls keeps its core for a while, since to be woken takes longer than most waits. That is for worlds
/// with one core per rank.
enum class WaitMode { sleeping, polling };
inline constexpr std::chrono::milliseconds kLongestPoll(20);

/// How a thread waits, and what ends its waits besides what it waits for.
struct WaitPolicy {
  WaitMode mode = WaitMode::sleeping;
  std::stop_token stop = {};
  std::atomic<bool> may_spin = true;  ///< false: another thread of the rank computes on it

  bool polls() const { return mode == WaitMode::polling && may_spin; }
};

/// When a wait of `timeout` that begins now ends. The clock counts nanoseconds, and ends after 292 years: a longer
/// timeout than thirty years, infinity and NaN are thirty years.
std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<double> timeout);

// Errors of waits; `doing` names the rank and its call.
/// `who` has failed, and how: "rank 2 has failed (…)".
CommError stopped(const std::string& doing, const std::string& who);
/// The rank itself has aborted the wait.
CommError aborted(const std::string& doing);
CommError no_answer(const std::string& doing, std::chrono::duration<double> timeout);

}  // namespace stagecoach
