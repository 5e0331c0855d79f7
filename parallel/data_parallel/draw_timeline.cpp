#include "parallel/data_parallel/draw_timeline.h"

#include <algorithm>

#include "parallel/drawing/timeline.h"

namespace stagecoach {
namespace {

Colour colour_of(const Bar& bar) {
  switch (bar.kind) {
    case Bar::Kind::communication:
      return kGreen;
    case Bar::Kind::update:
      return kPurple;
    case Bar::Kind::compute:
      return bar.name == "forward" ? kSkyBlue : kOrange;
  }
  return kBlack;
}

/// Returns a chart with two rows per timeline: the rank's work, and its messages.
TimelineChart chart_of(const NamedTimelines& timelines) {
  TimelineChart chart{.idle_name = "idle"};
  for (const auto& [name, timeline] : timelines) {
    chart.length = std::max(chart.length, timeline.seconds);
    TimelineRow rank{.name = name, .end = timeline.seconds};
    TimelineRow messages{.name = "  messages", .shows_idle = false};
    for (const Bar& bar : timeline.bars) {
      const bool is_message = bar.kind == Bar::Kind::communication;
      (is_message ? messages : rank)
          .bars.push_back({.begin = bar.begin,
                           .end = bar.end,
                           .colour = colour_of(bar),
                           .label = bar.name,
                           .title = bar.name,
                           .mark = is_message ? '|' : bar.name.front(),
                           .fill = is_message ? '=' : '-'});
    }
    chart.rows.push_back(std::move(rank));
    chart.rows.push_back(std::move(messages));
  }
  return chart;
}

}  // namespace

std::string draw_text(const NamedTimelines& timelines, const Terminal& terminal, const std::string& unit) {
  TimelineChart chart = chart_of(timelines);
  chart.unit = unit;
  for (TimelineRow& row : chart.rows) {
    for (TimelineBar& bar : row.bars) {
      bar.label.insert(0, bar.mark == '|' ? "|" : "");  // else a name would follow the last message's fill
    }
  }
  return timeline_text(chart, terminal);
}

std::string draw_svg(const NamedTimelines& timelines, const std::string& title, const std::string& unit) {
  TimelineChart chart = chart_of(timelines);
  chart.title = title;
  chart.unit = unit;
  chart.legend = {{"forward", kSkyBlue}, {"backward", kOrange}, {"update", kPurple}, {"message", kGreen}};
  return timeline_svg(chart);
}

}  // namespace stagecoach
