#pragma once
/// @file
/// Launchers and loggers put text before the lines that a program prints: "[1,0]<stdout>:" (mpirun --tag-output), "0: "
/// (srun --label), "[default0]:" (torchrun), "2026-11-27 10:00:00,123 INFO train: " (logging).

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// What the text before a line says about who printed it. Lines of one rank and one form are one series.
struct LineSource {
  std::optional<std::int64_t> rank;
  std::string form;  ///< the text, with a mark in place of every number, weekday and month; empty if there is no text

  auto operator<=>(const LineSource&) const = default;
};

LineSource source_of(std::string_view prefix);

/// Returns what a launcher put before this line with the rank's number; empty if nothing. It is there once for a line,
/// so not where a progress bar begins the line anew.
std::string_view launcher_tag(std::string_view line);

/// Returns the series to read: the lines without a prefix, else those of rank 0, else those of the only rank or logger.
/// Throws DataError, which begins with `where`, if there is a choice. `sources` may repeat; at least one.
LineSource choose_source(const std::vector<LineSource>& sources, const std::string& where);

}  // namespace stagecoach
