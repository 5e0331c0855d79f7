#pragma once
/// @file
/// The steps in a trace.json, as a report shows them.

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <string>

namespace stagecoach {

/// Returns the first traced steps whose JSON has at most `max_bytes`, or why there are none: { "ranks", "omitted",
/// "predicted_links", "steps" }. A step has "epoch", "step", its duration
/// "eighths"; "measured" and "predicted" with one list per
/// rank, [name, start, duration, …] of what it computes; "arrivals" and "predicted_arrivals", [name, time, …] of the
/// messages that have one; and "memory" with one list per rank, [time, bytes, …]. Times are whole eighths of a
/// microsecond since the step began. Throws DataError for a damaged file.
nlohmann::json trace_steps(const std::filesystem::path& file, std::size_t max_bytes);

/// Returns the same without steps, for this reason.
nlohmann::json no_trace_steps(const std::string& reason);

}  // namespace stagecoach
