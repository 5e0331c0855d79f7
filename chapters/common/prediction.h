#pragma once
/// @file
/// What a plan should take, before and after it was tried: shown by --explain, and printed beside what was measured.

#include <filesystem>
#include <optional>

#include "chapters/common/epoch_log.h"
#include "chapters/common/plan.h"
#include "parallel/pipeline/run_trace.h"
#include "parallel/schedule/simulate.h"

namespace stagecoach {

/// The costs of a textbook: a forward takes 1, a backward 2, messages nothing.
Costs unit_costs(int stages);

/// Whether the times of actions can be measured: by the wall clock a GPU's actions end before its work does.
bool measures_actions(const Plan& plan);

/// What an epoch of `steps` steps should have taken, by the costs that were measured in it.
Prediction predict(const Plan& plan, const Costs& measured, std::int64_t steps);

/// The step that `costs` predict, for the trace; nothing where they cannot be measured.
std::optional<PredictedStep> predict_step(const Plan& plan, const Costs& costs);

/// Writes schedule.csv (the computations), schedule_lowered.csv, schedule_trace.json and prediction.json.
void write_prediction(const std::filesystem::path& folder, const Schedule& schedule, const Simulation& simulation);

/// Prints how many messages and bytes each link and each rank carries in a run of the plan's schedule.
void print_messages(const Plan& plan, std::int64_t microbatch);

/// Prints the schedule, its timeline, idle time and memory: in units, or with --profile in measured seconds and bytes.
/// How much is sent is always said. With --out also writes the files of write_prediction and schedule.svg.
void explain(const Settings& settings, const Plan& plan);

}  // namespace stagecoach
