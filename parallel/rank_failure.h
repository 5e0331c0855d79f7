#pragma once
/// @file
/// How the error of one rank is told: to its user, and to the other ranks.

#include <exception>
#include <filesystem>
#include <string>

#include "parallel/comm/flight_recorder.h"

namespace stagecoach {

/// The exception that is being handled, with the rank, its stage and micro-batch in its text unless it is the user's
/// business or names them already.
std::exception_ptr with_rank(int rank);

/// What it says; for one that is no error, "it stops".
std::string words_of(const std::exception_ptr& failure);
/// False for what ends a program as it should, such as an interruption.
bool is_error(const std::exception_ptr& failure);

/// Writes `recorder`'s events to `folder`/flight_RANK.jsonl, and nothing if `folder` is empty. What cannot be written
/// is left out: there is an error to tell already.
void leave_flight_record(const FlightRecorder& recorder, const std::filesystem::path& folder, int rank) noexcept;

}  // namespace stagecoach
