#pragma once
/// @file
/// What an asynchronous pipeline should take: shown by --explain, and printed beside what was measured.

#include <optional>

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/epoch_log.h"
#include "chapters/common/step_trace.h"
#include "parallel/pipeline/action_log.h"

namespace stagecoach {

/// What an epoch should have been like, by what was measured in it: the means, and each action's own time. All ranks
/// call it together.
Prediction predict_epoch(const StreamPlan& plan, const ActionLog& log);

/// The traced beginning of an epoch, as the costs that were measured so far predict it. All ranks call it together.
std::optional<PredictedStep> predict_traced(const StreamPlan& plan, const ActionLog& log);

/// Prints what there is to say before a training: a warning of --versions none, and with --ledger which version each
/// action uses, and the delays, for the first micro-batches of an epoch.
void introduce(const Settings& settings, const StreamPlan& plan);

/// Prints the stages, the schedule's beginning, its timeline, idle time, versions and memory: in units, or with
/// --profile in measured seconds and bytes. With --out also writes schedule.csv, ledger.csv, schedule.svg,
/// schedule_trace.json and prediction.json, of what is shown.
void explain_stream(const Settings& settings, const StreamPlan& plan);

}  // namespace stagecoach
