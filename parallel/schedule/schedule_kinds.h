#pragma once
/// @file
/// What is known of each schedule: its name, what it takes, its idle time and memory. Flags, help, chapters and tests
/// read the rows; schedule_table.h lists them.

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace stagecoach {

/// What a generator takes.
struct ScheduleSizes {
  int ranks = 1;
  int microbatches = 1;
  int chunks = 1;  ///< stages per rank
  int group = 0;   ///< micro-batches that pass a chunk before the next one's turn; 0: the generator's choice
};

/// What all stages of a rank take for one micro-batch together, in any unit. Ranks are equal, messages take no time.
struct PassTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double total() const { return forward + backward_input + backward_weight; }
  bool are_equal() const { return forward == backward_input && forward == backward_weight; }
  /// tF + tI - tW, of which the idle time of zero bubble schedules is a multiple, and what they need for that: weight
  /// gradients that fit where they are put.
  double without_weight() const { return forward + backward_input - backward_weight; }
  bool weights_fit() const { return backward_weight <= std::min(forward, backward_input); }
};

/// One schedule, and what is known of it; tests/parallel/schedule_kinds_test.cpp proves that.
struct ScheduleKind {
  std::string name;     ///< of --schedule
  std::string summary;  ///< one line
  int least_chunks = 1;
  int most_chunks = 1;
  bool takes_group = false;
  bool splits_backward = false;  ///< into I and W
  bool is_v_shaped = false;      ///< placed in a V; else round-robin
  bool sends_wait = false;       ///< a sender waits until its receiver takes the message
  /// The idle share of a step where tF = tI = tW: "(p - 1) / (v m + p - 1)".
  std::string idle_share;
  /// The sizes for which that holds: "m >= p"; empty for all.
  std::string idle_domain = {};
  /// The time in which a rank is idle in one step, from the first action of any rank to the last. None outside of the
  /// domain, and for times at which no formula is known.
  std::optional<double> (*idle)(const ScheduleSizes& sizes, const PassTimes& times) = nullptr;
  /// The most (stage, micro-batch) pairs alive at once on a rank.
  int (*peak_activations)(const ScheduleSizes& sizes, int rank) = nullptr;
  Schedule (*make)(const ScheduleSizes& sizes) = nullptr;

  bool takes_chunks() const { return most_chunks > least_chunks; }
};
inline constexpr int kAnyChunks = INT_MAX;

/// `idle` where `holds`; nothing elsewhere.
inline std::optional<double> idle_where(bool holds, double idle) { return holds ? std::optional(idle) : std::nullopt; }

/// Every schedule, one row each.
const std::vector<ScheduleKind>& schedule_kinds();
/// The row of `name`, or nullptr.
const ScheduleKind* find_schedule(const std::string& name);
/// The names of the rows, in their order.
const std::vector<std::string>& schedule_names();
/// Makes the schedule of that name for p >= 1 ranks, m >= 1 micro-batches and v chunks per rank; v = 0 stands for as
/// few chunks as it takes, group = 0 for its own choice. Throws UsageError for a name that is not known, for chunks or
/// groups in a schedule that has none, and for sizes that it cannot take; the error names the nearest ones that it can.
Schedule make_schedule(const std::string& name, int p, int m, int v = 0, int group = 0);

struct IdleFormula {
  std::string text;             ///< "(p - 1) / (v m + p - 1)"
  std::optional<double> share;  ///< 0 … 1; none outside of the formula's domain
  std::string domain;           ///< "m >= p"; empty where it holds for all sizes
};
/// The idle share of a step in theory, with stages and passes (F, I and W) that take equally long, for p, m, v >= 1.
/// None for a name that is not known.
std::optional<IdleFormula> idle_formula(const std::string& schedule, int p, int m, int v);

}  // namespace stagecoach
