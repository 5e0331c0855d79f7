#include "chapters/04_pipedream/stream_prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "chapters/common/dry_run.h"
#include "chapters/common/planned_memory.h"
#include "chapters/common/planned_step.h"
#include "chapters/common/prediction.h"
#include "chapters/common/wait_causes.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/units.h"
#include "datasets/shares.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/text.h"
#include "parallel/schedule/traffic.h"
#include "parallel/training/run_files.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

/// Returns the costs if all ranks have equal work: unit costs for each rank of a stage.
Costs balanced_costs(const StreamPlan& plan) {
  Costs costs = unit_costs(plan);
  for (int s = 0; s < plan.stages(); ++s) {
    for (auto* each : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weight}) {
      (*each)[static_cast<std::size_t>(s)] *= plan.schedule.replicas_of(s);
    }
  }
  return costs;
}

/// Returns the beginning of an epoch, long enough to show the steady state.
Schedule beginning_of(const StreamPlan& plan) {
  int shown = 3 * plan.world.ranks;
  for (int s = 0; s < plan.stages(); ++s) {
    shown = std::max(shown, 3 * plan.schedule.microbatches_per_update(s));
  }
  return plan.schedule_for(static_cast<std::size_t>(std::min(shown, plan.schedule.microbatches)));
}

void print_stages(const StreamPlan& plan) {
  fmt::print("  stages    --split {} --replicas {}{}\n  link      {}\n", fmt::join(plan.split, ","),
             fmt::join(plan.replicas(), ","),
             plan.seconds > 0 ? fmt::format(": {:.3f} ms from one micro-batch to the next", 1e3 * plan.seconds) : "",
             plan.settings.world.link.text());
}

/// Prints the measurements and the stage of each layer.
void print_profile(const StreamPlan& plan) {
  fmt::print("\nLayers, for one micro-batch{}\n  {:<24} {:>5} {:>12} {:>13} {:>12} {:>12}\n",
             plan.recompute == Stage::Recompute::yes ? "; a backward runs the forward again" : "", "layer", "stage",
             "forward ms", "backward ms", "output KiB", "weights KiB");
  std::size_t layer = 0;
  for (std::size_t s = 0; s < plan.split.size(); ++s) {
    for (int i = 0; i < plan.split[s]; ++i, ++layer) {
      const LayerProfile& one = plan.profile[layer];
      fmt::print("  {:<24} {:>5} {:>12.3f} {:>13.3f} {:>12.1f} {:>12.1f}\n", plan.layers[layer].first, s,
                 1e3 * one.forward, 1e3 * one.backward(plan.recompute), static_cast<double>(one.output_bytes) / 1024,
                 static_cast<double>(one.parameter_bytes) / 1024);
    }
  }
}

/// Returns the epoch's table without its last batch, if that one has fewer micro-batches than the others.
Schedule full_batches_of(const StreamPlan& plan) {
  const int rest = plan.schedule.microbatches % plan.microbatches_per_batch;
  const int full = plan.schedule.microbatches - rest;
  return rest == 0 || full == 0 ? plan.schedule : plan.schedule_for(static_cast<std::size_t>(full));
}

/// Returns what a step takes in the mean of an epoch's full batches, so that the ends of the epoch count.
PlannedStep step_of(const StreamPlan& plan, const Schedule& full, const Simulation& simulation) {
  const std::vector<int> delays = largest_delays(full, make_ledger(full, plan.versions));
  const double steps = std::max(1, full.microbatches / plan.microbatches_per_batch);
  return {.seconds = simulation.seconds / steps,
          .idle = simulation.idle,
          .idle_in_span = simulation.idle_in_span,
          .peak_activations = simulation.peak_activations,
          .link_bytes = busiest_link_bytes(plan, full) / steps,
          .staleness = *std::max_element(delays.begin(), delays.end())};
}

/// Prints the memory of each rank, and returns its total for a rank in its own process.
std::vector<double> print_memory(const StreamPlan& plan, const Ledger& ledger) {
  const auto activations = kept_bytes(plan, plan.microbatch);
  const auto weights = weight_bytes_of_stages(plan.profile, plan.split);
  const auto rebuilt = rebuilt_bytes(plan);
  const auto peaks = peak_bytes(plan.schedule, ledger, weights, activations);
  const auto workspace = workspace_bytes_of_stages(plan.profile, plan.split);
  const auto received =
      peak_bytes(plan.schedule, ledger, std::vector<double>(weights.size(), 0), received_bytes(plan, plan.microbatch));
  const auto posted = peak_receive_bytes(plan.schedule, message_bytes(plan, plan.microbatch));
  fmt::print(
      "\nMemory, in MiB: versions of the weights, gradients, activations in flight; as a process of its own also the "
      "optimizer's state,\nreceived tensors, and workspace, not counting the program and the images of --data\n");
  std::vector<double> totals;
  for (std::size_t r = 0; r < peaks.size(); ++r) {
    const auto s = static_cast<std::size_t>(plan.schedule.stage_of(static_cast<int>(r)));
    const double peak = peaks[r] + rebuilt[s];
    const double optimizer_bytes =
        optimizer_bytes_per_weight_byte(plan.settings.training) * updated_bytes(plan, static_cast<int>(r), weights[s]);
    const double process = peak + optimizer_bytes + received[r] + posted[r] + workspace[s];
    totals.push_back(process);
    fmt::print(
        "  rank {} (stage {}): {:.3f} per version, {:.3f} per micro-batch, at most {:.3f} in all; predicted resident "
        "memory {:.3f}\n",
        r, s, weights[s] / kMiB, activations[s] / kMiB, peak / kMiB, process / kMiB);
  }
  return totals;
}

void write_files(const StreamPlan& plan, const Schedule& shown, const Ledger& ledger, const Simulation& simulation,
                 const PlannedStep& step) {
  const Settings& settings = plan.settings;
  if (settings.run.out.empty()) {
    return;
  }
  const std::filesystem::path folder = make_folder(settings.run.out);
  write_tables(folder, shown, simulation, message_bytes(plan, plan.microbatch));
  write_planned_step(folder, settings, step);
  write_text(folder / run_files::kLedger, to_csv(shown, ledger));
  write_text(folder / run_files::kScheduleFigure,
             draw_versions_svg(shown, simulation, ledger,
                               fmt::format("Versions of the weights: {}", name_of(settings.pipeline.versions)),
                               settings.run.profile ? "s" : "units"));
  fmt::print(
      "\nWritten to {}: schedule.csv, schedule_lowered.csv, ledger.csv, schedule.svg, schedule_trace.json, "
      "prediction.json{}\n",
      printable(folder.string()), settings.run.profile ? ", profile.json" : "");
}

void print_ledger(const StreamPlan& plan) {
  const Schedule shown = beginning_of(plan);
  const Ledger ledger = make_ledger(shown, plan.versions);
  fmt::print("\nLedger: the version of the weights that each forward (F) and backward (B) uses\n{}",
             to_text(shown, ledger));
}

/// Returns how long an epoch should have taken, from what was measured in it.
Prediction predicted_time(const StreamPlan& plan, const ActionLog& log, std::int64_t steps) {
  const Ledger ledger = make_ledger(plan.schedule, plan.versions);
  Costs costs = measured_costs(plan, log);
  costs.sizes = plan.sizes;
  const ActionSeconds exchanges = exchanges_in(plan, {plan.images});
  const ActionSeconds computations = log.seconds();
  const ActionSeconds seconds = with_exchanges(computations, exchanges);
  const Simulation predicted = simulate(plan.schedule, costs);
  Prediction prediction{.ideal_idle = simulate(plan.schedule, balanced_costs(plan)).idle,
                        .versions = peak_versions(plan.schedule, ledger),
                        .delays = largest_delays(plan.schedule, ledger)};
  if (measures_actions(plan) && !seconds.front().empty()) {  // otherwise the run was resumed after the last batch
    prediction.predicted_idle = predicted.idle;
    prediction.predicted_seconds = predicted.seconds;
    prediction.busiest_seconds = *std::max_element(predicted.busy.begin(), predicted.busy.end());
    if (std::ssize(seconds.front()) == count_timed(plan.schedule.ranks.front())) {  // this run trained the whole epoch
      const ActionSeconds before = log.before();
      const auto replay = [&](const Costs& replayed_costs, const ActionSeconds& of_actions) -> ReplayedSteps {
        const Simulation replayed = simulate(plan.schedule, replayed_costs, of_actions, before);
        return {replayed.seconds, replayed.idle};
      };
      const ReplayedSteps replayed = replay(costs, seconds);
      prediction.replayed_seconds = replayed.seconds;
      if (log.is_of_first_rank() && plan.world.clock != ClockKind::wall) {  // see predicted_time in prediction.cpp
        const double idle = simulate(plan.schedule, equal_work(plan.schedule, costs)).idle;
        prediction.causes = wait_causes(costs, idle, computations, exchanges, steps, replay);
      }
      if (plan.world.clock == ClockKind::modelled) {  // computed times do not vary by chance, so they are not averaged
        prediction.predicted_seconds = replayed.seconds;
        prediction.predicted_idle = replayed.idle;
      }
    }
    *prediction.predicted_idle += exchange_share(exchanges, *prediction.predicted_seconds);
  }
  return prediction;
}

}  // namespace

Predictor make_predictor(const StreamPlan& plan, ActionLog& log) {
  Predictor predictor = make_predictor(static_cast<const Plan&>(plan), log);  // its timeline, too
  predictor.time = [&](std::int64_t steps) { return predicted_time(plan, log, steps); };
  return predictor;
}

void introduce(const StreamPlan& plan) {
  const Settings& settings = plan.settings;
  if (settings.pipeline.versions == Versions::none && settings.pipeline.version_check) {
    fmt::print(
        "note: --versions none overwrites weights that backwards still need. The version check will stop the run; "
        "--no-version-check continues with wrong gradients\n");
  }
  if (settings.run.ledger) {
    print_ledger(plan);
  }
}

void explain_stream(const StreamPlan& plan) {
  const Settings& settings = plan.settings;
  const bool measured = settings.run.profile;
  Costs costs = measured ? costs_of(plan, plan.microbatch) : balanced_costs(plan);
  costs.sizes = plan.sizes;
  const Schedule shown = beginning_of(plan);
  const Ledger ledger = make_ledger(shown, plan.versions);
  const Simulation beginning = simulate_plan(plan, shown, costs, &ledger).simulation;
  const Schedule full = full_batches_of(plan);
  const Ledger full_ledger = make_ledger(full, plan.versions);
  const PlannedRun planned = simulate_plan(plan, full, costs, &full_ledger);
  const Simulation& epoch = planned.simulation;

  fmt::print("{}, weights by '{}': {} per epoch, {} per update; {} on {}\n", plan.model_name,
             name_of(settings.pipeline.versions), counted(plan.schedule.microbatches, "micro-batch"),
             plan.microbatches_per_batch, counted(plan.stages(), "stage"), counted(plan.world.ranks, "rank"));
  print_stages(plan);
  if (!plan.profile.empty()) {
    print_profile(plan);
  }
  fmt::print("\nSchedule of the first {} micro-batches, one line per rank\n{}", shown.microbatches,
             to_text(settings.run.lowered ? shown : computations_of(shown)));
  fmt::print("\nTimeline, {}\n{}",
             measured ? measured_times(settings) : "where " + unit_text(plan, "1 per rank of its stage,"),
             draw_text(shown, beginning, standard_output(), ledger, measured ? "s" : "units"));
  const Ledger epoch_ledger = make_ledger(plan.schedule, plan.versions);
  fmt::print("\n  idle            {:.1f}% of these micro-batches, {:.2f}% of an epoch\n", 100 * beginning.idle,
             100 * epoch.idle);
  fmt::print("  activations     {} micro-batches at most, rank by rank\n", fmt::join(epoch.peak_activations, ", "));
  fmt::print("  versions        {} at most, rank by rank\n",
             fmt::join(peak_versions(plan.schedule, epoch_ledger), ", "));
  fmt::print("  delays          {} updates at most, stage by stage\n",
             fmt::join(largest_delays(plan.schedule, epoch_ledger), ", "));
  print_messages(plan);
  PlannedStep step = step_of(plan, full, epoch);
  if (measured) {
    const std::vector<double> processes = print_memory(plan, epoch_ledger);
    step.memory_bytes = planned.memory_bytes.empty() ? processes : planned.memory_bytes;
  }
  for (const std::string& note : plan.notes) {
    fmt::print("\nnote: {}\n", printable(note));
  }
  if (settings.run.ledger) {
    print_ledger(plan);
  }
  write_files(plan, shown, ledger, beginning, step);
}

}  // namespace stagecoach
