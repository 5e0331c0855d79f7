#pragma once
/// @file
/// What an asynchronous pipeline should take: shown by --explain, and printed beside what was measured.

#include "chapters/04_pipedream/stream_plan.h"
#include "chapters/common/run_log.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// What an epoch should have been like, by the costs that were measured in it: their means, and those of each action.
Expected expect_epoch(const StreamPlan& plan, const Costs& measured, const ActionSeconds& seconds);

/// Prints which version each action uses, and the delays, for the first micro-batches of an epoch.
void print_ledger(const StreamPlan& plan);

/// Prints the stages, the schedule's beginning, its timeline, idle time, versions and memory: in units, or with
/// --profile in measured seconds and bytes. With --out also writes schedule.csv, ledger.csv, schedule.svg,
/// schedule_trace.json and prediction.json, of what is shown.
void explain_stream(const Settings& settings, const StreamPlan& plan);

}  // namespace stagecoach
