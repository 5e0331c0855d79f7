#include "chapters/04_pipedream/prediction.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>

#include "chapters/common/micro_batches.h"
#include "chapters/common/run_folder.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/ledger.h"
#include "parallel/schedule/text.h"

namespace stagecoach {
namespace {

constexpr double kMiB = 1 << 20;

/// When all ranks have the same work: a forward takes 1 on each rank of its stage, a backward 2.
Costs balanced_costs(const StreamPlan& plan) {
  Costs costs = Costs::uniform(plan.stages(), 1, 1, 1);
  for (int s = 0; s < plan.stages(); ++s) {
    for (auto* each : {&costs.forward, &costs.backward, &costs.backward_input, &costs.backward_weight}) {
      (*each)[static_cast<std::size_t>(s)] *= plan.schedule.replicas_of(s);
    }
  }
  return costs;
}

/// The beginning of an epoch, long enough to show the steady state.
Schedule beginning_of(const StreamPlan& plan) {
  const auto shown = std::max<std::int64_t>(3 * plan.world.ranks, 3 * plan.microbatches);
  const auto all = static_cast<std::int64_t>(plan.schedule.microbatches);
  return plan.schedule_for(static_cast<std::size_t>(std::min(shown, all)));
}

/// Seconds of work of the rank that has most.
double busiest(const Schedule& schedule, const Costs& costs) {
  double most = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    double work = 0;
    for (const Action& action : schedule.ranks[r]) {
      work += action.operation == Operation::update ? costs.update_of(r) : costs.of(action);
    }
    most = std::max(most, work);
  }
  return most;
}

void print_stages(const Settings& settings, const StreamPlan& plan) {
  fmt::print("  stages    --split {} --replicas {}{}\n  link      {}\n", fmt::join(plan.split, ","),
             fmt::join(plan.replicas(), ","),
             plan.seconds > 0 ? fmt::format(": {:.3f} ms from one micro-batch to the next", 1e3 * plan.seconds) : "",
             settings.link);
}

/// What was measured of each layer, and which stage it went to.
void print_profile(const StreamPlan& plan) {
  fmt::print("\nLayers, for one micro-batch\n  {:<24} {:>5} {:>12} {:>13} {:>12} {:>12}\n", "layer", "stage",
             "forward ms", "backward ms", "output KiB", "weights KiB");
  std::size_t layer = 0;
  for (std::size_t s = 0; s < plan.split.size(); ++s) {
    for (int i = 0; i < plan.split[s]; ++i, ++layer) {
      const LayerProfile& one = plan.profile[layer];
      fmt::print("  {:<24} {:>5} {:>12.3f} {:>13.3f} {:>12.1f} {:>12.1f}\n", plan.layers[layer].first, s,
                 1e3 * one.forward, 1e3 * (one.backward_input + one.backward_weight),
                 static_cast<double>(one.output_bytes) / 1024, static_cast<double>(one.parameter_bytes) / 1024);
    }
  }
}

/// Bytes of one version of each stage's weights.
std::vector<double> weights_of_stages(const StreamPlan& plan) {
  std::vector<double> bytes;
  std::size_t layer = 0;
  for (const int count : plan.split) {
    bytes.push_back(0);
    for (int i = 0; i < count; ++i) {
      bytes.back() += static_cast<double>(plan.profile[layer++].parameter_bytes);
    }
  }
  return bytes;
}

void print_memory(const Settings& settings, const StreamPlan& plan, const Ledger& ledger) {
  const std::int64_t pictures = micro_batch_sizes(settings.batch_size, settings.microbatches)[0];
  const std::int64_t input_bytes = plan.shapes[0].numel() * pictures * static_cast<std::int64_t>(sizeof(float));
  const auto recompute = settings.recompute ? Stage::Recompute::yes : Stage::Recompute::no;
  const auto activations = bytes_of_stages(plan.profile, plan.split, input_bytes, recompute);
  const auto weights = weights_of_stages(plan);
  const auto peaks = peak_bytes(plan.schedule, ledger, weights, activations);
  fmt::print("\nMemory, in MiB: versions of the weights, gradients, activations in flight; the optimizer's state comes on top\n");
  for (std::size_t r = 0; r < peaks.size(); ++r) {
    const auto s = static_cast<std::size_t>(plan.stage_of(static_cast<int>(r)));
    fmt::print("  rank {} (stage {}): a version {:.3f}, a micro-batch {:.3f}, at most {:.3f} in all\n", r, s,
               weights[s] / kMiB, activations[s] / kMiB, peaks[r] / kMiB);
  }
}

void write_files(const Settings& settings, const Schedule& shown, const Ledger& ledger, const Simulation& simulation) {
  if (settings.out.empty()) {
    return;
  }
  const std::filesystem::path folder = make_folder(settings.out);
  const nlohmann::ordered_json prediction{{"step_seconds", simulation.seconds},
                                          {"idle", simulation.idle},
                                          {"idle_in_span", simulation.idle_in_span},
                                          {"peak_activations", simulation.peak_activations},
                                          {"peak_versions", peak_versions(shown, ledger)}};
  write_text(folder / "schedule.csv", to_text(shown));
  write_text(folder / "ledger.csv", to_csv(shown, ledger));
  write_text(folder / "prediction.json", prediction.dump() + "\n");
  write_text(folder / "schedule.svg",
             draw_versions_svg(shown, simulation, ledger, fmt::format("{}: a colour a version", settings.versions)));
  write_text(folder / "schedule_trace.json", draw_trace(shown, simulation));
  fmt::print("\nWritten to {}: schedule.csv, ledger.csv, schedule.svg, schedule_trace.json, prediction.json\n",
             folder.string());
}

}  // namespace

Expected expect_epoch(const StreamPlan& plan, const Costs& measured, const ActionSeconds& seconds) {
  const Ledger ledger = make_ledger(plan.schedule, plan.versions);
  Expected expected{.ideal_idle = simulate(plan.schedule, balanced_costs(plan)).idle,
                    .versions = peak_versions(plan.schedule, ledger)};
  Costs costs = measured;
  costs.average = plan.averaging;
  const Simulation predicted = simulate(plan.schedule, costs);
  // By the wall clock a GPU's actions end before its work does; and an epoch that is resumed at its end measured none.
  const bool measures = plan.world.device == DeviceType::cpu || plan.world.clock == ClockKind::virtual_time;
  if (measures && predicted.seconds > 0) {
    expected.predicted_idle = predicted.idle;
    expected.predicted_seconds = predicted.seconds;
    expected.busiest_seconds = busiest(plan.schedule, costs);
    const bool whole = seconds.front().size() == plan.schedule.ranks.front().size();  // not resumed within it
    expected.replayed_seconds = whole ? simulate(plan.schedule, costs, seconds).seconds : predicted.seconds;
  }
  return expected;
}

void print_ledger(const StreamPlan& plan) {
  const Schedule shown = beginning_of(plan);
  const Ledger ledger = make_ledger(shown, plan.versions);
  fmt::print("\nLedger: the version of the weights that each forward (F) and backward (B) uses\n{}",
             to_text(shown, ledger, shown.microbatches));
}

void explain_stream(const Settings& settings, const StreamPlan& plan) {
  const bool measured = settings.profile;
  Costs costs = balanced_costs(plan);
  if (measured) {
    costs = costs_of(plan, micro_batch_sizes(settings.batch_size, settings.microbatches)[0]);
    costs.average = plan.averaging;
  }
  const Schedule shown = beginning_of(plan);
  const Ledger ledger = make_ledger(shown, plan.versions);
  const Simulation beginning = simulate(shown, costs);
  const Simulation epoch = simulate(plan.schedule, costs);
  const Colours colours = isatty(STDOUT_FILENO) == 1 ? Colours::terminal : Colours::none;

  fmt::print("{}, weights by '{}': {} micro-batch(es) an epoch, {} an update; {} stage(s) on {} rank(s)\n",
             settings.model, settings.versions, plan.schedule.microbatches, plan.microbatches, plan.stages(),
             plan.world.ranks);
  print_stages(settings, plan);
  if (!plan.profile.empty()) {
    print_profile(plan);
  }
  fmt::print("\nSchedule of the first {} micro-batches, a line a rank\n{}", shown.microbatches, to_text(shown));
  fmt::print("\nTimeline, {}\n{}",
             measured ? "with the times that the layers took here"
                      : "where each rank's share of a forward takes 1 and of a backward 2",
             draw_text(shown, beginning, 100, colours, ledger));
  const auto delays = delays_of(plan.schedule, make_ledger(plan.schedule, plan.versions));
  std::vector<int> last;
  std::transform(delays.begin(), delays.end(), std::back_inserter(last), [](const auto& of) { return of.back(); });
  fmt::print("\n  idle            {:.1f}% of these micro-batches, {:.2f}% of an epoch\n", 100 * beginning.idle,
             100 * epoch.idle);
  fmt::print("  activations     {} micro-batches at most, a rank\n", fmt::join(beginning.peak_activations, ", "));
  fmt::print("  versions        {} at most, a rank\n", fmt::join(peak_versions(shown, ledger), ", "));
  fmt::print("  delays          {} updates, a stage, in the steady state\n", fmt::join(last, ", "));
  if (measured) {
    print_memory(settings, plan, make_ledger(plan.schedule, plan.versions));
  }
  if (settings.ledger) {
    print_ledger(plan);
  }
  write_files(settings, shown, ledger, beginning);
}

}  // namespace stagecoach
