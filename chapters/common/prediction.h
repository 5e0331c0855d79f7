#pragma once
/// @file
/// Predictions of a plan's times and messages: shown by --explain before a run, and beside the measurements
/// after it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "chapters/common/plan.h"
#include "parallel/pipeline/action_log.h"
#include "parallel/schedule/simulate.h"
#include "parallel/schedule/traffic.h"
#include "parallel/training/predictor.h"

namespace stagecoach {

/// Returns textbook costs: a forward takes 1, a backward 2, or 3 with recomputation, and messages take no time.
Costs unit_costs(const Plan& plan);
/// Describes them: "a forward takes 1 and a backward 2".
std::string unit_text(const Plan& plan, const std::string& forward = "1");

/// Returns the heading of a timeline with measured times, which says whose they are.
std::string measured_times(const Settings& settings);

/// Returns whether the times of actions can be measured. On a GPU with the wall clock they cannot, since an action
/// returns before the GPU's work is done.
bool measures_actions(const Plan& plan);

/// Returns each computation's largest cost among those that the ranks of `group` have measured, which compute the same
/// and wait for the slowest. All of them call it.
Costs slowest_of(Costs measured, Communicator& group);

/// Returns the plan's costs: the mean of what all ranks have measured in `log`, and the time of messages and
/// collectives, which the measured times do not contain. These are of the largest micro-batch, so that a prediction is
/// a little too long for an epoch whose last batch is smaller. The ranks of each of `same_stages` compute the same
/// stages. All ranks call it together.
Costs measured_costs(const Plan& plan, const ActionLog& log, const std::vector<Communicator*>& same_stages = {});

/// Returns the seconds for which each rank exchanges tensors with its tensor-parallel group, or tied weights, within
/// its actions, in runs of the schedule for these numbers of images: [ranks][all actions of these runs except messages;
/// after each run the update, if the schedule does not list updates].
ActionSeconds exchanges_in(const Plan& plan, const std::vector<std::int64_t>& runs);
/// Adds such exchanges to the seconds of the same actions, which were measured without; nothing if there are not as
/// many.
ActionSeconds with_exchanges(ActionSeconds seconds, const ActionSeconds& exchanges);
/// Returns the share of `seconds` that such exchanges take, in the mean of the ranks. A run counts these waits as idle
/// time; the actions of a simulation contain them.
double exchange_share(const ActionSeconds& exchanges, double seconds);

/// Returns what predicts a run of the plan from measured_costs(). Each epoch clears the log. The arguments must outlive
/// the run's epochs.
Predictor make_predictor(const Plan& plan, ActionLog& log, const std::vector<Communicator*>& same_stages = {});

/// Writes schedule.csv (the computations), schedule_lowered.csv and schedule_trace.json (with the sizes
/// `message_bytes`). Only a schedule of one step can be written in PyTorch's format.
void write_tables(const std::filesystem::path& folder, const Schedule& schedule, const Simulation& simulation,
                  const std::vector<double>& message_bytes, TableFormat format = TableFormat::stagecoach);

/// Returns what a run of `schedule`, the plan's or a part of it, sends over each link: its messages, in the size of the
/// largest micro-batch, and tied weights.
std::vector<LinkTraffic> traffic_of(const Plan& plan, const Schedule& schedule);
/// Returns the bytes that it sends over its busiest link in one direction.
double busiest_link_bytes(const Plan& plan, const Schedule& schedule);

/// Prints how many messages and bytes each link and each rank transfers in a run of the plan's schedule.
void print_messages(const Plan& plan);

/// Prints the schedule, its timeline, idle time and memory: in units, or with --profile in measured seconds and bytes.
/// Always prints how much is sent. With --out, also writes the files of write_tables, prediction.json and schedule.svg.
/// `collective_bytes`: what collectives send over a link in a step, beside the schedule's messages.
void explain(const Plan& plan, double collective_bytes = 0);

}  // namespace stagecoach
