#pragma once
/// @file
/// How the error of one rank is reported to the user and to the other ranks.

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "parallel/comm/flight_recorder.h"

namespace stagecoach {

/// Returns the exception that is being handled, with the rank, its stage and its micro-batch added to its text, unless
/// it is a user error or already names them.
std::exception_ptr with_rank(int rank) noexcept;

/// Returns the text of `failure`, or "it stops" if is_error is false.
std::string words_of(const std::exception_ptr& failure);
/// Returns false for exceptions that end a program normally, such as an interruption.
bool is_error(const std::exception_ptr& failure);

/// Calls `run` in a process that is rank `rank`. If `run` throws an error, writes the rank's flight record, calls
/// `tell` to tell the other ranks, and throws the error as returned by with_rank.
void run_as_process(int rank, const std::function<void(const std::shared_ptr<FlightRecorder>& recorder)>& run,
                    const std::function<void(const std::string& why)>& tell);

}  // namespace stagecoach
