#include "chapters/07_one_controller/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "chapters/07_one_controller/clock_ticks.h"
#include "core/base/phrases.h"
#include "core/trace.h"
#include "parallel/drawing/timeline.h"
#include "parallel/training/console.h"

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
    table += fmt::format("  {:>4}", tick + 1);
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

/// Returns the events of the second of two steps: in the first one, memory is touched for the first time. Where times
/// are computed, nothing else is: tensors have no memory.
Events measure_step(const Settings& settings, PlacedModel model, const Dataset& data, const TrainStep& step) {
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
  const std::int64_t side = settings.training.image_size;
  const Batch batch{Tensor::zeros({images, 3, side, side}, DType::uint8), Tensor::zeros({images}, DType::int32)};
  EpochSums sums(model.devices.back());
  const auto run = [&] {
    step(settings, model, batch, *optimizer, sums);
    finish_queued_calls();
  };
  run();
  Trace trace;
  trace.attach(
      0, clock == nullptr ? std::function<double()>() : [&] { return clock->now(); });
  run();
  Trace::detach();
  return trace.events();
}

}  // namespace

std::string layer_table(const TrainingSettings& training, const PlacedModel& model) {
  std::string table = fmt::format("  {:<14} {:<8} {:<20} {:>11}\n", "layer", "device", "output", "parameters");
  Shape shape{training.batch_size, 3, training.image_size, training.image_size};
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
    print_text(timeline_of(model, measure_step(settings, model, data, step), settings.world.clock));
  }
}

}  // namespace stagecoach
