#pragma once
/// @file
/// Predictions for an asynchronous pipeline: shown by --explain, and printed beside the measurements.

#include "chapters/04_pipedream/stream_plan.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/training/predictor.h"

namespace stagecoach {

/// Returns what predicts a run of the plan from what `log` has measured in an epoch: the mean costs over all ranks, and
/// the time of each action. The arguments must outlive the run's epochs.
Predictor make_predictor(const StreamPlan& plan, ActionLog& log);

/// Prints remarks before a training: a warning for --versions none, and with --ledger the version that each action uses
/// and the delays, for the first micro-batches of an epoch.
void introduce(const StreamPlan& plan);

/// Prints the stages and the beginning of the schedule, with its timeline, idle time, versions and memory: in units, or
/// with --profile in measured seconds and bytes. With --out, also writes what it shows to schedule.csv, ledger.csv,
/// schedule.svg, schedule_trace.json and prediction.json.
void explain_stream(const StreamPlan& plan);

}  // namespace stagecoach
