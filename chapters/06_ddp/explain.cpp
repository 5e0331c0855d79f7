#include "chapters/06_ddp/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "chapters/common/open.h"
#include "chapters/common/planned_step.h"
#include "chapters/common/prediction.h"
#include "core/allocator.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/text_file.h"
#include "core/base/units.h"
#include "datasets/shares.h"
#include "parallel/comm/lone_communicator.h"
#include "parallel/data_parallel/draw_timeline.h"
#include "parallel/data_parallel/flat.h"
#include "parallel/schedule/traffic.h"
#include "parallel/training/run_files.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

using MakeStrategy = std::function<std::unique_ptr<Strategy>(const Context&)>;

/// Returns the bytes that a rank sends per byte that a ring sums over `ranks` ranks.
double ring_share(int ranks) { return 2.0 * (ranks - 1) / ranks; }

struct MeasuredStep {
  StepCosts costs;
  double memory_bytes = 0;  ///< that tensors take at most
};

/// Measures the part of rank `index` in a step of the mode of `settings` on this machine, by the CPU time of its
/// thread; or computes it for the modelled device, with tensors without elements. Nothing is exchanged.
MeasuredStep measure_step(const Settings& settings, const Topology& topology, const TrainTest& data, Device device,
                          int index, const MakeStrategy& make) {
  constexpr int kWarmUps = 3;  // in the second step, buckets are laid out anew
  const WorldSettings& world = settings.world;
  const bool is_modelled = world.clock == ClockKind::modelled;
  LoneCommunicator comm(self_communicator(
      {topology.world.device}, is_modelled ? ClockKind::modelled : ClockKind::virtual_time, *world.modelled_device));
  Rank rank{index, 1, device, comm};
  const std::int64_t count = share_of(settings.training.batch_size, 0, topology.world.ranks).count;
  const Tensor inputs = blank_inputs(settings.training, count, device);
  const Tensor targets = blank_targets(settings.training, count, device);
  const std::int64_t parts = settings.training.microbatches;
  const MicroBatches batch{micro_batch_sizes(count, parts), settings.training.batch_size, micro_batches(inputs, parts),
                           micro_batches(targets, parts)};
  const std::size_t held_before = allocator(device).stats().current_bytes;  // a batch is in the host's memory
  allocator(device).reset_peak();
  EpochSums sums(device);
  const std::unique_ptr<Strategy> strategy = make({settings, topology, data, rank});
  strategy->broadcast_weights();
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      strategy->forward_backward(batch, sums);
      strategy->sum_gradients();
      strategy->update();
    }
  };
  run(kWarmUps);
  strategy->times()->clear();
  run(is_modelled ? 1 : 5);
  return {strategy->times()->mean(), static_cast<double>(allocator(device).stats().peak_bytes - held_before)};
}

/// Returns costs in units: a forward takes 1 and a backward 2; gradients become ready at even intervals, the last
/// parameter's first.
StepCosts unit_costs_of(const NamedTensors& parameters) {
  StepCosts costs{.forward = 1, .backward = 2};
  const auto count = static_cast<double>(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    costs.arrivals.push_back(2 * (count - static_cast<double>(i)) / count);
  }
  return costs;
}

/// Returns the link on which a ring all-reduce of the gradients takes 1, of which 0.05 is latency.
Link unit_link(int ranks, double bytes) {
  if (ranks == 1) {
    return {};
  }
  const double messages = 2.0 * (ranks - 1);
  return {.latency = 0.05 / messages, .bytes_per_second = messages * bytes / ranks / 0.95};
}

void print_buckets(const StepModel& step) {
  const BucketLayout layout = bucket_layout(step.parameters, reverse_order(step.parameters.size()), step.caps);
  fmt::print("\nBuckets before the first backward\n");
  for (std::size_t b = 0; b < layout.size(); ++b) {
    double bytes = 0;
    for (const std::size_t i : layout[b]) {
      bytes += static_cast<double>(step.parameters[i].second.bytes());
    }
    fmt::print("  {:<3} {:>9.1f} KiB  {:>3} gradients, {} to {}\n", b, bytes / kKiB, layout[b].size(),
               step.parameters[layout[b].front()].first, step.parameters[layout[b].back()].first);
  }
}

/// Prints the ways to reduce `bytes` over all ranks, and their costs.
void print_reductions(const Link& link, int p, double bytes, const std::string& unit) {
  const double rounds = tree_broadcast_seconds({.latency = 1}, p, 0);
  fmt::print("\nOne sum of {:.1f} KiB over {} ranks\n  {:<12} {:>24} {:>28} {:>12}\n", bytes / kKiB, p, "as a",
             "messages in a row", "KiB through the busiest rank", unit);
  const auto row = [&](const char* name, double messages, double volume, double seconds) {
    fmt::print("  {:<12} {:>24} {:>28.1f} {:>12.6g}\n", name, messages, volume / kKiB, seconds);
  };
  row("ring", 2.0 * (p - 1), 2.0 * (p - 1) * bytes / p, ring_all_reduce_seconds(link, p, bytes));
  row("tree", 2 * rounds, 2 * rounds * bytes, 2 * tree_broadcast_seconds(link, p, bytes));
  row("rank by rank", 2.0 * (p - 1), 2.0 * (p - 1) * bytes, 2 * root_reduce_seconds(link, p, bytes));
}

void print_sweep(StepModel step, const std::string& unit) {
  fmt::print("\nBucket sizes\n  {:>12} {:>8} {:>12} {:>8} {:>8}\n", "cap, KiB", "buckets", unit, "idle", "overlap");
  double best = 0;
  double best_seconds = 0;
  for (std::size_t cap = 1024; cap <= (std::size_t{64} << 20); cap *= 4) {
    step.caps = {cap, cap};
    const Timeline timeline = timeline_of(DataParallelMode::buckets, step);
    const auto count = bucket_layout(step.parameters, reverse_order(step.parameters.size()), step.caps).size();
    fmt::print("  {:>12} {:>8} {:>12.6g} {:>7.1f}% {:>7.1f}%\n", cap >> 10, count, timeline.seconds,
               100 * timeline.idle(), 100 * timeline.overlap());
    if (best == 0 || timeline.seconds < best_seconds) {
      best = static_cast<double>(cap);
      best_seconds = timeline.seconds;
    }
    if (count == 1) {
      break;
    }
  }
  if (step.link == Link{}) {
    fmt::print("  all the same: messages take no time here; --clock virtual --link ethernet100 changes that\n");
  } else {
    fmt::print("  best: {} KiB\n", best / kKiB);
  }
}

/// Writes the files of --explain. `timelines` has one timeline per mode, in the order of the modes. `memory_bytes` are
/// those of each rank.
void write_files(const Settings& settings, const NamedTimelines& timelines, double gradient_bytes,
                 const std::vector<double>& memory_bytes) {
  const std::filesystem::path folder = make_folder(settings.run.out);
  std::string table;
  for (int r = 0; r < settings.world.ranks; ++r) {
    for (std::int64_t i = r * settings.training.microbatches; i < (r + 1) * settings.training.microbatches; ++i) {
      table += fmt::format("{}0F{},0B{}", i == r * settings.training.microbatches ? "" : ",", i, i);
    }
    table += "\n";
  }
  const Timeline& chosen = timelines[static_cast<std::size_t>(*settings.data_parallel.mode)].second;
  const auto ranks = static_cast<std::size_t>(settings.world.ranks);
  const double compressed = settings.data_parallel.compress == CompressionKind::half ? 0.5 : 1;
  const bool is_central = *settings.data_parallel.mode == DataParallelMode::central;
  PlannedStep step{.seconds = chosen.seconds,
                   .idle = chosen.idle(),
                   .idle_in_span = chosen.idle(),
                   .peak_activations = std::vector<int>(ranks, 1),
                   .memory_bytes = memory_bytes,
                   .link_bytes = compressed * gradient_bytes * (is_central ? 1 : ring_share(settings.world.ranks))};
  for (const auto& [mode, timeline] : timelines) {
    step.modes[mode] = {{"step_seconds", timeline.seconds}, {"idle", timeline.idle()}, {"overlap", timeline.overlap()}};
  }
  write_text(folder / run_files::kSchedule, table);
  write_planned_step(folder, settings, step);
  write_text(folder / run_files::kTimelines,
             draw_svg(timelines, fmt::format("One step on {} ranks, by mode", settings.world.ranks),
                      settings.run.profile ? "s" : "units"));
  fmt::print("\nWritten to {}: schedule.csv, prediction.json, timelines.svg\n", printable(folder.string()));
}

/// Prints the traffic of a step's gradient sums, as a ring over the pipelines.
void print_gradient_sums(const Topology& topology) {
  const Plan& plan = *topology.pipeline;
  const double share = ring_share(topology.mesh.data);
  fmt::print("\nGradient sums of one step over {} pipelines, without compression\n  {:<12} {:>9} {:>11} {:>11}\n",
             topology.mesh.data, "rank", "sums", "MiB", "MiB sent");
  const auto bytes = gradient_bytes(plan);
  const auto ranks = reduction_traffic(plan.schedule, bytes);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    fmt::print("  {:<12} {:>9} {:>11.3f} {:>11.3f}\n", r, ranks[r].reductions, ranks[r].bytes / kMiB,
               share * ranks[r].bytes / kMiB);
  }
}

}  // namespace

void explain_modes(const Settings& settings, const Topology& topology, const TrainTest& data,
                   const MakeStrategy& make) {
  if (topology.pipeline) {
    fmt::print(
        "{} pipelines of {} ranks, each for its shard of a batch; a stage's gradients are summed when its last "
        "backward is done\n",
        topology.mesh.data, topology.mesh.pipeline);
    const auto gradients = gradient_bytes(*topology.pipeline);
    const double most = *std::max_element(gradients.begin(), gradients.end());
    explain(*topology.pipeline, ring_share(topology.mesh.data) * most);
    return print_gradient_sums(topology);
  }
  const bool is_modelled = settings.world.clock == ClockKind::modelled;
  const Device device{is_modelled ? DeviceType::meta : topology.world.device};
  const auto model = make_model(settings.training, data.train, device);
  const NamedTensors parameters = model->named_parameters();
  const double bytes = bytes_of(parameters);
  const bool measured = settings.run.profile;
  std::vector<double> memory;  // of each rank
  const auto step_in = [&](DataParallelMode mode) {
    Settings of_mode = settings;
    of_mode.data_parallel.mode = mode;
    const auto measure = [&](int rank) { return measure_step(of_mode, topology, data, device, rank, make); };
    MeasuredStep one = measured ? measure(0) : MeasuredStep{unit_costs_of(parameters)};
    const int ranks = topology.world.ranks;
    const bool all_alike = mode != DataParallelMode::central || ranks == 1;
    const MeasuredStep other = measured && !all_alike ? measure(1) : one;
    if (measured && mode == settings.data_parallel.mode) {
      memory.assign(static_cast<std::size_t>(ranks), other.memory_bytes);
      memory.front() = one.memory_bytes;
    }
    if (measured && one.costs.update > 0) {
      one.costs.update_share = (1 + (ranks - 1) * other.costs.update / one.costs.update) / ranks;
    }
    StepModel step = step_of(settings, topology, parameters, one.costs);
    step.link = measured ? step.link : unit_link(topology.world.ranks, bytes);
    return step;
  };
  const StepModel step = step_in(DataParallelMode::buckets);
  const std::string unit = measured ? "seconds" : "units";

  fmt::print("One step of {}: {} on {}, gradients of {:.1f} KiB\n  link      {}\n", settings.training.model,
             counted(std::min(settings.training.batch_size, data.train.size()), "image"),
             counted(topology.world.ranks, "rank"), bytes / kKiB,
             measured ? settings.world.link.text()
                      : "a ring all-reduce of all gradients takes 1, of which 0.05 is latency (--profile uses --link)");
  if (settings.data_parallel.compress != CompressionKind::none) {
    fmt::print("  compress  half the bytes per bucket\n");
  }
  print_buckets(step);
  NamedTimelines timelines;
  for (const auto mode :
       {DataParallelMode::single, DataParallelMode::parameter, DataParallelMode::buckets, DataParallelMode::central}) {
    timelines.emplace_back(name_of(mode), timeline_of(mode, step_in(mode)));
  }
  fmt::print("\nTimelines, {}\n{}",
             measured ? "with the times that the model takes here" : "where a forward takes 1 and a backward 2",
             draw_text(timelines, standard_output(), measured ? "s" : "units"));
  fmt::print("\n  {:<10} {:>12} {:>8} {:>8}\n", "mode", unit, "idle", "overlap");
  for (const auto& [mode, timeline] : timelines) {
    fmt::print("  {:<10} {:>12.6g} {:>7.1f}% {:>7.1f}%\n", mode, timeline.seconds, 100 * timeline.idle(),
               100 * timeline.overlap());
  }
  print_sweep(step, unit);
  print_reductions(step.link, topology.world.ranks, bytes, unit);
  if (!settings.run.out.empty()) {
    write_files(settings, timelines, bytes, memory);
  }
}

}  // namespace stagecoach
