#pragma once
/// @file
/// How a rank waits for others, whatever they talk by, and what it says when it has waited in vain.

#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>

#include "parallel/comm/communicator.h"

namespace stagecoach {

/// A thread that polls keeps its core for a while: to be woken takes longer than most waits. That is for ranks with a
/// core each.
enum class Waits { sleeping, polling };
inline constexpr std::chrono::milliseconds kLongestPoll(20);

/// How a thread waits, and what ends its waits besides what it waits for.
struct Patience {
  Waits waits = Waits::sleeping;
  std::stop_token stop = {};
  std::atomic<bool> has_core = true;  ///< or another thread of the rank computes on it

  bool polls() const { return waits == Waits::polling && has_core; }
};

/// When a wait of `timeout` that begins now ends. The clock counts nanoseconds, and ends after 292 years: a longer
/// timeout than thirty years, infinity and NaN are thirty years.
std::chrono::steady_clock::time_point deadline_after(std::chrono::duration<double> timeout);

// Errors of waits; `doing` names the rank and its call.
/// `who` has failed, and how: "rank 2 has failed (…)".
CommError stopped(const std::string& doing, const std::string& who);
/// The rank itself waits no longer.
CommError given_up(const std::string& doing);
CommError no_answer(const std::string& doing, std::chrono::duration<double> timeout);

}  // namespace stagecoach
