#pragma once
/// @file
/// How the error of one rank is told: to its user, and to the other ranks.

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/flight_recorder.h"

namespace stagecoach {

/// The exception that is being handled, with the rank, its stage and micro-batch in its text unless it is the user's
/// business or names them already.
std::exception_ptr with_rank(int rank) noexcept;

/// What it says; for one that is no error, "it stops".
std::string words_of(const std::exception_ptr& failure);
/// False for what ends a program as it should, such as an interruption.
bool is_error(const std::exception_ptr& failure);

/// What a process does as rank `rank`: calls `run`. When that throws an error, leaves the rank's flight record and
/// calls `tell`, to tell the others. Throws it on, as with_rank says it.
void run_as_process(int rank, const std::function<void(const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(const std::string& why)>& tell);

}  // namespace stagecoach
