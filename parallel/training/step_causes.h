#pragma once
/// @file
/// Where the time of a step goes: what the ranks work is measured, and why they wait for each other is calculated.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stagecoach {

/// Numbers in the order in which they are shown.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

/// Why ranks wait for each other in a step, in seconds, in the mean of the ranks.
struct StepCauses {
  double bubble = 0;      ///< if all ranks had equally much to do, and neither messages nor reductions took time
  double messages = 0;    ///< what messages add, and collectives within a forward or backward
  double reductions = 0;  ///< what sums of gradients over ranks add then
  /// All waits together, also those for ranks that have more to do, but without waits for data. If they are not known,
  /// waits that are not explained otherwise are due to unequal work.
  std::optional<double> all = {};

  /// Adds messages for which all ranks wait.
  void add_messages(double seconds) {
    messages += seconds;
    all = all ? std::optional(*all + seconds) : std::nullopt;
  }
};

/// A step as it was measured, in seconds, in the mean of the ranks and of an epoch's steps.
struct MeasuredTimes {
  double step = 0;
  double working = 0;           ///< without waits
  double updating = 0;          ///< the part of `working` in the optimizer
  double loading = 0;           ///< the part of `working` in which the next batch was made
  double waiting_for_data = 0;  ///< the part of the waits in which it was waited for
};

/// Returns the parts of a step, in seconds, which add up to it: "ideal" (the work of forwards and backwards), "bubble",
/// "imbalance", "messages", "reductions", "update" and "host" (loading data, and waits for that).
NamedNumbers step_parts(const MeasuredTimes& measured, const StepCauses& causes);

}  // namespace stagecoach
