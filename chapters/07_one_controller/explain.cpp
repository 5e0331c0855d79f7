#include "chapters/07_one_controller/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "chapters/07_one_controller/clock_ticks.h"
#include "chapters/common/planned_step.h"
#include "core/allocator.h"
#include "core/base/phrases.h"
#include "core/base/printable.h"
#include "core/base/units.h"
#include "core/trace.h"
#include "core/transfer.h"
#include "parallel/comm/modelled_streams.h"
#include "parallel/drawing/timeline.h"
#include "parallel/training/console.h"
#include "parallel/training/run_folder.h"

namespace stagecoach {
namespace {

/// Returns one line per clock tick: which micro-batch each device is given.
std::string tick_table(const PlacedModel& model, int microbatches) {
  std::string table = "  tick";
  for (const Device device : model.devices) {
    table += fmt::format(" {:>7}", to_string(device));
  }
  table += "\n";
  for (int tick = 0; tick < tick_count(model.size(), microbatches); ++tick) {
    std::vector<std::string> cells(model.devices.size(), ".");
    for (const auto [stage, microbatch] : forwards_of_tick(tick, model.size(), microbatches)) {
      cells[static_cast<std::size_t>(stage)] = fmt::format("{}F{}", stage, microbatch);
    }
    table += fmt::format("  {:>4}", tick);
    for (const std::string& cell : cells) {
      table += fmt::format(" {:>7}", cell);
    }
    table += "\n";
  }
  return table;
}

using Events = std::vector<Trace::Event>;

/// Returns the events of a track and category, in order of time.
Events events_of(const Events& all, int track, std::string_view category) {
  Events found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const Trace::Event& event) { return event.track == track && event.category == category; });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  return found;
}

/// A label such as "2F5" is the forward of stage 2 and micro-batch 5; calls of the backward have none.
TimelineBar bar_of(const Trace::Event& event) {
  const auto letter = event.label.find('F');
  const bool is_forward = letter != std::string::npos;
  return {.begin = event.start,
          .end = event.end,
          .colour = is_forward ? kSkyBlue : kOrange,
          .label = is_forward ? event.label.substr(letter) : "",
          .mark = is_forward ? 'F' : 'B',
          .fill = is_forward ? 'F' : 'B'};
}

/// Returns a row in which calls with the same label that follow each other closely are one bar.
TimelineRow row_of(const std::string& name, const Events& events, double start, double closely) {
  TimelineRow row{.name = name};
  for (const Trace::Event& event : events) {
    TimelineBar bar = bar_of(event);
    bar.begin -= start;
    bar.end -= start;
    if (!row.bars.empty() && row.bars.back().label == bar.label && bar.begin - row.bars.back().end < closely) {
      row.bars.back().end = bar.end;
    } else {
      row.bars.push_back(bar);
    }
  }
  return row;
}

/// Returns the timeline of a step, from its events.
std::string timeline_of(const PlacedModel& model, const Events& all, ClockKind clock) {
  const Events host = events_of(all, 0, "action");
  double end = 0;
  for (const Trace::Event& event : all) {
    end = std::max(end, event.end);
  }
  const double start = host.front().start;
  TimelineChart chart{
      .title = clock == ClockKind::modelled ? "Timeline of a step, modelled" : "Timeline of a step, measured",
      .unit = "s",
      .length = end - start,
      .legend = {{"forward", kSkyBlue}, {"backward", kOrange}},
      .idle_name = "idle"};
  const double closely = chart.length / 200;
  chart.rows.push_back(row_of("host", host, start, closely));
  for (const Device device : model.devices) {
    const int track = Trace::kStreams + 2 * device.index + Stream::kCompute;
    chart.rows.push_back(row_of(to_string(device), events_of(all, track, "device"), start, closely));
  }
  return timeline_text(chart, standard_output()) + "\n";
}

/// A step, and the times of the calls in it. On the modelled clock also its numbers: seconds, and bytes.
struct MeasuredStep {
  Events events;
  double seconds = 0;
  double host_seconds = 0;           ///< until the program had made the last call
  double idle = 0;                   ///< in the mean of the devices
  std::vector<double> memory_bytes;  ///< that tensors and kernels take at most, per device
  double link_bytes = 0;             ///< over the busiest link in one direction
};

/// Runs the second of two steps on modelled streams, and fills in the numbers.
void count_step(const std::vector<Device>& devices, Clock& clock, const std::function<void()>& run,
                MeasuredStep& step) {
  const ModelledStreams& streams = *ModelledStreams::current();
  const auto busy = [&] {
    double sum = 0;
    for (const Device device : devices) {
      sum += streams.busy_seconds(device);
    }
    return sum;
  };
  for (const Device device : devices) {
    allocator(device).reset_peak();
  }
  const auto moved_before = bytes_moved();
  const double begin = clock.now();
  const double busy_before = busy();
  run();
  step.host_seconds = clock.now() - begin;
  finish_queued_calls();
  step.seconds = clock.now() - begin;
  step.idle = 1 - (busy() - busy_before) / (static_cast<double>(devices.size()) * step.seconds);
  for (const Device device : devices) {
    step.memory_bytes.push_back(static_cast<double>(allocator(device).stats().peak_bytes));
  }
  for (const auto& [link, bytes] : bytes_moved()) {
    const auto before = moved_before.find(link);
    const bool is_between = link.first.type == link.second.type && link.first != link.second;
    step.link_bytes =
        std::max(step.link_bytes, is_between ? bytes - (before == moved_before.end() ? 0 : before->second) : 0.0);
  }
}

/// Runs two steps and returns the second: in the first one, memory is touched for the first time. Where times are
/// computed, nothing else is: tensors have no memory.
MeasuredStep measure_step(const Settings& settings, PlacedModel model, const Dataset& data, const TrainStep& step) {
  std::unique_ptr<Clock> clock;
  if (settings.world.clock == ClockKind::modelled) {
    clock = make_clock(ClockKind::modelled, Device{}, {}, *settings.world.modelled_device);
    for (Device& device : model.devices) {
      device.type = DeviceType::meta;
    }
  }
  model.place(settings.training.seed);
  const auto optimizer = make_optimizer(settings.training, model.whole->named_parameters());
  const std::int64_t images = std::min(settings.training.batch_size, data.size());
  const Batch batch{blank_inputs(settings.training, images, {}), blank_targets(settings.training, images, {})};
  EpochSums sums(model.devices.back());
  const BatchScope position(BatchPosition{});  // for layers that draw random numbers
  const auto run = [&] { step(settings, model, batch, *optimizer, sums); };
  run();
  finish_queued_calls();
  Trace trace;
  trace.attach(
      0, clock == nullptr ? std::function<double()>() : [&] { return clock->now(); });
  MeasuredStep measured;
  if (clock != nullptr) {
    count_step(model.devices, *clock, run, measured);
  } else {
    run();
    finish_queued_calls();
  }
  Trace::detach();
  measured.events = trace.events();
  return measured;
}

/// Returns the numbers of a step on the modelled clock, one per line.
std::string numbers_of(const MeasuredStep& step) {
  std::string memory;
  for (const double bytes : step.memory_bytes) {
    memory += fmt::format("{}{:.1f}", memory.empty() ? "" : ", ", bytes / kMiB);
  }
  return fmt::format(
      "  step            {:.3f} ms; the program has made its calls after {:.3f} ms\n"
      "  idle            {:.1f}% of the step\n"
      "  memory          {} MiB per device at most\n"
      "  busiest link    {:.3f} MiB\n",
      1e3 * step.seconds, 1e3 * step.host_seconds, 100 * step.idle, memory, step.link_bytes / kMiB);
}

/// With --out, writes what compare reads.
void write_plan(const Settings& settings, const MeasuredStep& step) {
  if (!settings.run.out.empty()) {
    write_planned_step(
        make_folder(settings.run.out), settings,
        {.seconds = step.seconds, .idle = step.idle, .memory_bytes = step.memory_bytes, .link_bytes = step.link_bytes});
    print_text(fmt::format("\nWritten to {}: prediction.json\n", printable(settings.run.out)));
  }
}

}  // namespace

std::string layer_table(const TrainingSettings& training, const PlacedModel& model) {
  std::string table = fmt::format("  {:<14} {:<8} {:<20} {:>11}\n", "layer", "device", "output", "parameters");
  Shape shape = input_shape(training, training.batch_size);
  for (std::size_t s = 0; s < model.stages.size(); ++s) {
    const Sequential& stage = *model.stages[s];
    for (int i = 0; i < stage.size(); ++i) {
      shape = stage.layer(i)->output_shape(shape);
      table += fmt::format("  {:<14} {:<8} {:<20} {:>11}\n", stage.name(i), to_string(model.devices[s]),
                           to_string(shape), parameter_count(*stage.layer(i)));
    }
  }
  return table;
}

void explain(const Settings& settings, PlacedModel& model, const Dataset& data, const TrainStep& step) {
  TrainingSettings training = settings.training;
  training.batch_size = std::min(training.batch_size, data.size());
  const auto microbatches = static_cast<int>(training.microbatches);
  print_text("Layers and their devices\n" + layer_table(training, model));
  print_text(fmt::format(
      "The forward of {} in {}: {}\n{}", counted(training.batch_size, "image"), counted(microbatches, "micro-batch"),
      counted(tick_count(model.size(), microbatches), "clock tick"), tick_table(model, microbatches)));
  print_text(
      "Then the outputs are concatenated, and one loss and one backward follow: the backward runs through the same "
      "devices in the reverse order.\n");
  if (settings.run.profile) {
    const MeasuredStep measured = measure_step(settings, model, data, step);
    print_text(timeline_of(model, measured.events, settings.world.clock));
    if (settings.world.clock == ClockKind::modelled) {
      print_text(numbers_of(measured));
      write_plan(settings, measured);
    }
  }
}

}  // namespace stagecoach
