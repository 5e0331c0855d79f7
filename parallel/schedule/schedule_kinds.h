#pragma once
/// @file
/// What is known about each schedule: its name, the sizes that it accepts, its idle time and its memory. Flags, help,
/// chapters and tests read these rows; schedule_table.h lists them.

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// The arguments of a generator.
struct ScheduleSizes {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;  ///< stages per rank
  int group = 0;   ///< micro-batches that pass a chunk before the next chunk; 0: the generator's choice
};

/// The times that all stages of a rank together take for one micro-batch, in any unit. All ranks take the same times,
/// and messages take no time.
struct PassTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double total() const { return forward + backward_input + backward_weight; }
  bool are_equal() const { return forward == backward_input && forward == backward_weight; }
  /// tF + tI - tW. The idle time of zero bubble schedules is a multiple of it if the weight gradients fit into the gaps
  /// that they fill: `weights_fit`.
  double without_weight() const { return forward + backward_input - backward_weight; }
  bool weights_fit() const { return backward_weight <= std::min(forward, backward_input); }
};

/// One schedule and what is known about it; tests/parallel/schedule_kinds_test.cpp checks these facts.
struct ScheduleKind {
  std::string name;     ///< the value of --schedule
  std::string summary;  ///< one line
  int min_chunks = 1;
  int max_chunks = 1;
  bool takes_group = false;
  bool splits_backward = false;  ///< into I and W
  bool is_v_shaped = false;      ///< placed in a V; otherwise round-robin
  bool sends_wait = false;       ///< a sender waits until its receiver takes the message
  /// The idle share of a step if tF = tI = tW: "(p - 1) / (v m + p - 1)".
  std::string idle_share;
  /// The sizes for which `idle_share` holds: "m >= p"; empty if it holds for all.
  std::string idle_domain = {};
  /// Returns the idle time of a rank in one step, from the first action of any rank to the last. Returns nothing
  /// outside of the domain, and for times for which no formula is known.
  std::optional<double> (*idle)(const ScheduleSizes& sizes, const PassTimes& times) = nullptr;
  /// Returns the largest number of (stage, micro-batch) pairs alive at once on a rank.
  int (*peak_activations)(const ScheduleSizes& sizes, int rank) = nullptr;
  Schedule (*make)(const ScheduleSizes& sizes) = nullptr;

  bool takes_chunks() const { return max_chunks > min_chunks; }
};
inline constexpr int kAnyChunks = INT_MAX;

/// Returns `idle` if `holds`; otherwise nothing.
inline std::optional<double> idle_where(bool holds, double idle) { return holds ? std::optional(idle) : std::nullopt; }

/// Returns the rows of all schedules.
const std::vector<ScheduleKind>& schedule_kinds();
/// Returns the row of `name`, or nullptr if there is none.
const ScheduleKind* find_schedule(const std::string& name);
/// Returns the names of the rows, in their order.
const std::vector<std::string>& schedule_names();
/// Makes the schedule `name` for p >= 1 ranks, m >= 1 micro-batches and v chunks per rank; v = 0 selects the fewest
/// chunks that the schedule accepts, group = 0 its default group. Throws UsageError for an unknown name, for chunks or
/// groups in a schedule that has none, and for sizes that the schedule does not accept; the error names the nearest
/// sizes that it accepts.
Schedule make_schedule(const std::string& name, int p, int m, int v = 0, int group = 0);

struct IdleFormula {
  std::string text;             ///< "(p - 1) / (v m + p - 1)"
  std::optional<double> share;  ///< from 0 to 1; nothing outside of the formula's domain
  std::string domain;           ///< "m >= p"; empty if the formula holds for all sizes
};
/// Returns the theoretical idle share of a step in which all stages and passes (F, I and W) take equally long, for p,
/// m, v >= 1. Returns nothing for an unknown name.
std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v);

}  // namespace stagecoach
