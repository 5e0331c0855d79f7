#include "chapters/common/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "chapters/common/dry_run.h"
#include "chapters/common/planned_memory.h"
#include "chapters/common/planned_step.h"
#include "chapters/common/wait_causes.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/units.h"
#include "datasets/shares.h"
#include "parallel/pipeline/predicted_trace.h"
#include "parallel/schedule/bottleneck.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/draw.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "parallel/training/run_files.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

constexpr double kNoticed = 1.005;  // the least speed-up that is visible with two decimals

/// Returns "1.234 ms", or "5 units".
std::string step_text(double seconds, bool measured) {
  return measured ? fmt::format("{:.3f} ms", 1e3 * seconds) : fmt::format("{} units", seconds);
}

/// Returns the formula for the idle share of a step, with its value where it holds.
std::string theory(const Plan& plan) {
  const Settings& settings = plan.settings;
  const std::string name = is_by_hand(settings.pipeline) ? "gpipe" : settings.pipeline.schedule;
  const auto formula = idle_formula(name, plan.world.ranks, plan.schedule.microbatches, settings.pipeline.chunks);
  if (!formula) {
    return "none: this table is your own";
  }
  if (!formula->share) {
    return fmt::format("none here: {} holds for {}", formula->text, formula->domain);
  }
  if (plan.recompute == Stage::Recompute::yes && find_schedule(name)->splits_backward) {
    return fmt::format("none here: {} holds without --recompute", formula->text);
  }
  return fmt::format("{} = {:.1f}%{}", formula->text, 100 * *formula->share,
                     settings.run.profile ? ", if all stages took equally long" : "");
}

}  // namespace

std::vector<LinkTraffic> traffic_of(const Plan& plan, const Schedule& schedule) {
  std::vector<LinkTraffic> links = link_traffic(schedule, message_bytes(plan, plan.microbatch));
  if (!plan.tied || plan.tied->first_rank == plan.tied->copy_rank) {
    return links;
  }
  const std::int64_t updates = schedule.batch > 0 ? ceil_div(schedule.microbatches, schedule.batch) : 1;
  const auto& [first, copy, bytes] = *plan.tied;
  for (const auto& [from, to] : {std::pair(first, copy), {copy, first}}) {
    const auto at = std::find_if(links.begin(), links.end(), [&, from = from, to = to](const LinkTraffic& link) {
      return std::pair(link.from, link.to) >= std::pair(from, to);
    });
    const bool is_new = at == links.end() || at->from != from || at->to != to;
    LinkTraffic& link = is_new ? *links.insert(at, {from, to}) : *at;
    link.messages += updates;
    link.bytes += static_cast<double>(updates) * bytes;
  }
  return links;
}

double busiest_link_bytes(const Plan& plan, const Schedule& schedule) {
  double most = 0;
  for (const LinkTraffic& link : traffic_of(plan, schedule)) {
    most = std::max(most, link.bytes);
  }
  return most;
}

void print_messages(const Plan& plan) {
  const auto links = traffic_of(plan, plan.schedule);
  const auto posted = peak_receive_bytes(plan.schedule, message_bytes(plan, plan.microbatch));
  const auto most = peak_receives(plan.schedule);
  fmt::print("\nMessages of one {}; bytes are those of the largest micro-batch\n  {:<12} {:>9} {:>11}\n",
             plan.schedule.batch > 0 ? "epoch" : "step", "link", "messages", "MiB");
  for (const LinkTraffic& link : links) {
    fmt::print("  {:<12} {:>9} {:>11.3f}\n", fmt::format("{} -> {}", link.from, link.to), link.messages,
               link.bytes / kMiB);
  }
  fmt::print("\n  {:<12} {:>9} {:>11} {:>10} {:>14} {:>17}\n", "rank", "sends", "MiB sent", "receives", "MiB received",
             "posted at most");
  for (int rank = 0; rank < plan.schedule.rank_count(); ++rank) {
    LinkTraffic out;
    LinkTraffic in;
    for (const LinkTraffic& link : links) {
      out.messages += link.from == rank ? link.messages : 0;
      out.bytes += link.from == rank ? link.bytes : 0;
      in.messages += link.to == rank ? link.messages : 0;
      in.bytes += link.to == rank ? link.bytes : 0;
    }
    const auto r = static_cast<std::size_t>(rank);
    fmt::print("  {:<12} {:>9} {:>11.3f} {:>10} {:>14.3f} {:>17}\n", rank, out.messages, out.bytes / kMiB, in.messages,
               in.bytes / kMiB, fmt::format("{} ({:.3f} MiB)", most[r], posted[r] / kMiB));
  }
}

void write_tables(const std::filesystem::path& folder, const Schedule& schedule, const Simulation& simulation,
                  const std::vector<double>& message_bytes, TableFormat format) {
  write_text(folder / run_files::kSchedule, to_text(computations_of(schedule)));
  write_text(folder / run_files::kLoweredSchedule,
             format == TableFormat::pytorch ? to_pytorch_text(schedule) : to_text(schedule));
  write_text(folder / run_files::kScheduleTrace, predicted_trace(schedule, simulation, message_bytes));
}

std::string measured_times(const Settings& settings) {
  const std::string& file = settings.pipeline.profile_file;
  if (file.empty() && settings.world.clock == ClockKind::modelled) {
    return "with the times that the layers would take on " + printable(settings.world.modelled_device->name);
  }
  return file.empty() ? "with the times that the layers took here" : "with the times in " + printable(file);
}

bool measures_actions(const Plan& plan) {
  return plan.world.device == DeviceType::cpu || plan.world.clock != ClockKind::wall;
}

Costs unit_costs(const Plan& plan) {
  const Costs costs = Costs::uniform(plan.stages(), 1, 1, 1);
  return plan.recompute == Stage::Recompute::yes ? with_recompute(costs) : costs;
}

std::string unit_text(const Plan& plan, const std::string& forward) {
  return plan.recompute == Stage::Recompute::yes
             ? fmt::format("a forward takes {} and a backward 3, as it runs the forward again", forward)
             : fmt::format("a forward takes {} and a backward 2", forward);
}

Costs slowest_of(Costs measured, Communicator& group) {
  for (auto* costs : {&measured.forward, &measured.backward, &measured.backward_input, &measured.backward_weight,
                      &measured.update, &measured.norm_work}) {
    std::vector<double> all(costs->size() * static_cast<std::size_t>(group.size()));
    std::copy(costs->begin(), costs->end(), all.begin() + std::ssize(*costs) * group.rank());
    all = group.sum_numbers(all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      double& slowest = (*costs)[i % costs->size()];
      slowest = std::max(slowest, all[i]);
    }
  }
  return measured;
}

ActionSeconds exchanges_in(const Plan& plan, const std::vector<std::int64_t>& steps) {
  ActionSeconds seconds(plan.schedule.ranks.size());
  for (const std::int64_t images : steps) {
    auto sizes = micro_batch_sizes(images, plan.schedule.microbatches);
    const bool lists_updates = plan.schedule.batch > 0;  // then these are the images of one batch among several
    const bool lacks_some = !lists_updates && std::ssize(sizes) < plan.schedule.microbatches;
    const Schedule fewer =
        lacks_some ? with_fewer_microbatches(plan.schedule, static_cast<int>(sizes.size())) : Schedule{};
    const Schedule& schedule = lacks_some ? fewer : plan.schedule;
    sizes.resize(static_cast<std::size_t>(schedule.microbatches));
    for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
      for (const Action& action : schedule.ranks[rank]) {
        if (is_computation(action.operation)) {
          const std::int64_t size = sizes[static_cast<std::size_t>(action.microbatch)];
          seconds[rank].push_back(exchange_seconds(plan, action, size));
        } else if (!is_message(action.operation)) {
          seconds[rank].push_back(exchange_seconds(plan, action, 0));
        }
      }
      if (!lists_updates) {
        seconds[rank].push_back(tied_seconds(plan, static_cast<int>(rank)));
      }
    }
  }
  return seconds;
}

ActionSeconds with_exchanges(ActionSeconds seconds, const ActionSeconds& exchanges) {
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    if (seconds[rank].size() == exchanges[rank].size()) {
      std::transform(seconds[rank].begin(), seconds[rank].end(), exchanges[rank].begin(), seconds[rank].begin(),
                     std::plus<>());
    }
  }
  return seconds;
}

double exchange_share(const ActionSeconds& exchanges, double seconds) {
  return seconds > 0 ? total_seconds(exchanges) / (static_cast<double>(exchanges.size()) * seconds) : 0;
}

namespace {

/// Returns the seconds that a rank worked in an epoch, in the mean of all ranks: `groups` are those of this rank that
/// run the same stages.
double mean_work(const ActionLog& log, const std::vector<Communicator*>& groups) {
  const ActionSeconds seconds = log.seconds();
  double sum = total_seconds(seconds) + total_seconds(log.before());
  for (Communicator* group : groups) {
    sum = group->sum_numbers({sum})[0] / group->size();
  }
  return sum / static_cast<double>(seconds.size());
}

/// Returns how long an epoch of `steps` steps should have taken, and its idle share, given the costs measured in it.
Prediction predicted_time(const Plan& plan, const Costs& measured, const ActionLog& log, std::int64_t steps,
                          const std::vector<Communicator*>& same_stages) {
  Prediction prediction{.ideal_idle = simulate(plan.schedule, unit_costs(plan)).idle, .memory = parts_of_memory(plan)};
  const SteadyState predicted = simulate_steady_state(plan.schedule, measured);
  if (measures_actions(plan) && predicted.seconds > 0) {  // an epoch that was resumed at its end has no measurements
    const double steady = predicted.seconds * static_cast<double>(steps);
    prediction.predicted_seconds = predicted.fill + steady;
    prediction.predicted_idle = std::max(1 - (1 - predicted.idle) * steady / *prediction.predicted_seconds, 0.0);
  }
  std::vector<std::int64_t> images(static_cast<std::size_t>(std::max<std::int64_t>(steps, 1)), plan.images);
  images.back() = plan.last_images;
  const ActionSeconds exchanges = exchanges_in(plan, images);
  if (prediction.predicted_idle) {
    *prediction.predicted_idle += exchange_share(exchanges, *prediction.predicted_seconds);
  }
  if (plan.world.clock == ClockKind::wall) {  // where links are not modelled, so nothing says why ranks wait
    return prediction;
  }
  const ActionSeconds computations = log.seconds();
  const ActionSeconds before = log.before();
  const auto last = relative_sizes(plan, micro_batch_sizes(plan.last_images, plan.schedule.microbatches));
  const auto replay = [&](const Costs& costs, const ActionSeconds& seconds) {
    return replay_steps(plan.schedule, costs, seconds, before, steps, last);
  };
  const auto replayed = replay(measured, with_exchanges(computations, exchanges));
  // Computed times do not vary by chance, so they are not averaged: the first backward of a step adds no gradients.
  if (plan.world.clock == ClockKind::modelled) {
    const double work = mean_work(log, same_stages);  // replicas may work less than this rank's pipeline
    if (replayed) {
      prediction.predicted_seconds = replayed->seconds;
      prediction.predicted_idle = std::max(1 - work / replayed->seconds, 0.0);
    }
  }
  if (prediction.predicted_seconds && replayed && log.is_of_first_rank()) {
    const double idle = simulate_steady_state(plan.schedule, equal_work(plan.schedule, measured)).idle;
    const auto replay_all = [&](const Costs& costs, const ActionSeconds& seconds) { return *replay(costs, seconds); };
    prediction.causes = wait_causes(measured, idle, computations, exchanges, steps, replay_all);
    if (plan.pipelines.size() > 1) {  // other pipelines may take other times
      prediction.causes->all.reset();
    }
  }
  return prediction;
}

}  // namespace

Costs measured_costs(const Plan& plan, const ActionLog& log, const std::vector<Communicator*>& same_stages) {
  Costs costs = log.mean_costs();
  for (Communicator* group : same_stages) {
    costs = slowest_of(costs, *group);
  }
  set_messages(plan, plan.microbatch, costs);
  add_collectives(plan, costs);
  return costs;
}

Predictor make_predictor(const Plan& plan, ActionLog& log, const std::vector<Communicator*>& same_stages) {
  const auto costs = [&plan, &log, same_stages] { return measured_costs(plan, log, same_stages); };
  return {.start_epoch = [&log] { log.clear(); },
          .time = [&plan, &log, costs,
                   same_stages](std::int64_t steps) { return predicted_time(plan, costs(), log, steps, same_stages); },
          .timeline = [&plan, costs]() -> std::optional<TracePrediction> {
            const Costs measured = costs();
            return measures_actions(plan) ? std::optional(prediction_of(plan.schedule, measured, plan.pipelines))
                                          : std::nullopt;
          }};
}

namespace {

/// Returns the mean costs of the actions as simulated. On the modelled clock these contain the loss and the update,
/// which a profile of the layers does not.
Costs simulated_costs(const Schedule& schedule, const Simulation& simulation, Costs costs) {
  std::map<std::pair<Operation, int>, std::pair<double, double>> sums;  // seconds and actions
  costs.update = simulation.busy;
  for_each_action(schedule, [&](std::size_t rank, std::size_t action_index, const Action& action) {
    if (is_computation(action.operation)) {
      const Simulation::Timed& times = simulation.timeline[rank][action_index];
      auto& [seconds, actions] = sums[{action.operation, action.stage}];
      seconds += times.end - times.start;
      ++actions;
      costs.update[rank] -= times.end - times.start;
    }
  });
  for (const auto& [operation, all] : {std::pair{Operation::forward, &costs.forward},
                                       {Operation::backward, &costs.backward},
                                       {Operation::backward_input, &costs.backward_input},
                                       {Operation::backward_weight, &costs.backward_weight}}) {
    for (std::size_t stage = 0; stage < all->size(); ++stage) {
      const auto found = sums.find({operation, static_cast<int>(stage)});
      (*all)[stage] = found == sums.end() ? (*all)[stage] : found->second.first / found->second.second;
    }
  }
  return costs;
}

}  // namespace

void explain(const Plan& plan, double collective_bytes) {
  const Settings& settings = plan.settings;
  if (settings.training.inject != Bug::none) {  // the table was checked before the bug entered it
    // The bug's name is left out: students look for a bug that they do not know.
    require_legal(plan.schedule, fmt::format("'{}' with the bug of --inject", settings.pipeline.schedule));
  }
  const bool measured = settings.run.profile;
  Costs costs = measured ? costs_of(plan, plan.microbatch) : unit_costs(plan);
  costs.bytes = message_bytes(plan, plan.microbatch);
  const PlannedRun planned = simulate_plan(plan, plan.schedule, costs);
  const Simulation& simulation = planned.simulation;
  const double idle =
      simulation.idle + (measured ? exchange_share(exchanges_in(plan, {plan.images}), simulation.seconds) : 0);

  fmt::print("One step of {}: {} in {}, {} on {}\n", plan.model_name, counted(plan.images, "image"),
             counted(plan.schedule.microbatches, "micro-batch"), counted(plan.stages(), "stage"),
             counted(plan.world.ranks, "rank"));
  fmt::print("  split     {} layers\n  link      {}\n", fmt::join(plan.split, ","), settings.world.link.text());
  fmt::print("\nSchedule '{}', one line per rank\n{}", printable(settings.pipeline.schedule),
             to_text(settings.run.lowered ? plan.schedule : computations_of(plan.schedule)));
  fmt::print("\nTimeline, {}\n{}", measured ? measured_times(settings) : "where " + unit_text(plan),
             draw_text(plan.schedule, simulation, standard_output(), {}, measured ? "s" : "units"));
  fmt::print("\n  step            {}\n", step_text(simulation.seconds, measured));
  if (kNoticed * planned.further_seconds < simulation.seconds) {
    fmt::print("  further steps   {} each, which ranks begin before the slowest ends this one\n",
               step_text(planned.further_seconds, measured));
  }
  fmt::print(
      "  idle            {:.1f}% of the step\n  by the formula  {}\n  idle in span    {:.1f}% between a rank's "
      "first and last action\n",
      100 * idle, theory(plan), 100 * simulation.idle_in_span);
  const std::string peaks = fmt::format("{}", fmt::join(simulation.peak_activations, ", "));
  fmt::print("  activations     {}{}(stage, micro-batch) pairs at most, rank by rank\n", peaks,
             peaks.size() > 32 ? "\n                  " : " ");  // of more than eight ranks
  if (const auto found =
          measured ? find_bottleneck(plan.schedule, simulated_costs(plan.schedule, simulation, costs)) : std::nullopt) {
    fmt::print("  bottleneck      rank {}, with stage {}: it works {:.3f} ms, {:.2f} times the mean{}\n", found->rank,
               found->stage, 1e3 * found->busy, found->excess,
               found->speedup < kNoticed
                   ? ""
                   : fmt::format("; with equal ranks a step would be {:.2f} times as fast", found->speedup));
  }
  for (const std::string& note : plan.notes) {
    fmt::print("  note: {}\n", printable(note));
  }
  print_messages(plan);
  PlannedStep step{.seconds = simulation.seconds,
                   .further_seconds = planned.further_seconds,
                   .idle = idle,
                   .idle_in_span = simulation.idle_in_span,
                   .peak_activations = simulation.peak_activations,
                   .memory_bytes = planned.memory_bytes,
                   .link_bytes = std::max(busiest_link_bytes(plan, plan.schedule), collective_bytes)};
  if (measured) {
    const auto ranks = planned_memory(plan, plan.microbatch);
    print_memory(plan, plan.microbatch, ranks);
    print_planned_memory(ranks);
    if (planned.memory_bytes.empty()) {
      std::transform(ranks.begin(), ranks.end(), std::back_inserter(step.memory_bytes),
                     [](const PlannedMemory& rank) { return rank.total(); });
    }
  }
  if (!settings.run.out.empty()) {
    const std::filesystem::path folder = make_folder(settings.run.out);
    write_tables(folder, plan.schedule, simulation, costs.bytes, settings.run.table_format);
    write_planned_step(folder, settings, step);
    write_text(folder / run_files::kScheduleFigure,
               draw_svg(plan.schedule, simulation, settings.pipeline.schedule, measured ? "s" : "units"));
    fmt::print(
        "\nWritten to {}: schedule.csv, schedule_lowered.csv, schedule.svg, schedule_trace.json, prediction.json{}\n",
        printable(folder.string()), measured ? ", profile.json" : "");
  }
}

}  // namespace stagecoach
