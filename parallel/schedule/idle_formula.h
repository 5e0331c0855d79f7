#pragma once
/// @file
/// The idle share of a step as the papers have it, where their formula holds.

#include <optional>
#include <string>

namespace stagecoach {

struct IdleFormula {
  std::string text;             ///< "(p - 1) / (v m + p - 1)"
  std::optional<double> share;  ///< 0 … 1; none outside of the formula's domain
  std::string domain;           ///< "m >= p"; empty where it holds for all sizes
};

/// The formula of a schedule of `schedule_names`, with p ranks, m micro-batches and v chunks, for stages that take
/// equally long, a backward twice as long as a forward, and messages that take no time. None for other names.
std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v);

}  // namespace stagecoach
