#include "chapters/07_one_controller/step_timeline.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "core/asynchronous.h"
#include "core/trace.h"
#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

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

}  // namespace

std::string step_timeline(const PlacedModel& model, const std::function<void()>& step) {
  step();
  finish_queued_calls();
  Trace trace;
  trace.attach(0);
  step();
  finish_queued_calls();
  Trace::detach();

  const Events all = trace.events();
  const Events host = events_of(all, 0, "action");
  double end = 0;
  for (const Trace::Event& event : all) {
    end = std::max(end, event.end);
  }
  const double start = host.front().start;
  TimelineChart chart{.title = "Timeline of a step, measured",
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

}  // namespace stagecoach
