#pragma once
/// @file
/// Predictions for an asynchronous pipeline: shown by --explain, and printed beside the measurements.

#include <cstdint>
#include <optional>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/epoch_log.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/pipeline/run_trace.h"

namespace stagecoach {

/// Returns how long an epoch should have taken, from what was measured in it: the mean costs over all ranks, and the
/// time of each action. All ranks call it together.
Prediction predicted_time(const StreamPlan& plan, const ActionLog& log);

/// Returns the predicted timeline of the traced steps, from the costs measured so far. All ranks call it together.
std::optional<TracePrediction> predicted_timeline(const StreamPlan& plan, const ActionLog& log);

/// Prints remarks before a training: a warning for --versions none, and with --ledger the version that each action uses
/// and the delays, for the first micro-batches of an epoch.
void introduce(const Settings& settings, const StreamPlan& plan);

/// Prints the stages and the beginning of the schedule, with its timeline, idle time, versions and memory: in units, or
/// with --profile in measured seconds and bytes. With --out, also writes what it shows to schedule.csv, ledger.csv,
/// schedule.svg, schedule_trace.json and prediction.json.
void explain_stream(const Settings& settings, const StreamPlan& plan);

}  // namespace stagecoach
