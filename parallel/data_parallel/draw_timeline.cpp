#include "parallel/data_parallel/draw_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/schedule/timeline_picture.h"

namespace stagecoach {
namespace {

double longest(const NamedTimelines& timelines) {
  double seconds = 0;
  for (const auto& [name, timeline] : timelines) {
    seconds = std::max(seconds, timeline.seconds);
  }
  return seconds;
}

char letter_of(const Bar& bar) {
  return bar.kind == Bar::Kind::update          ? 'u'
         : bar.kind == Bar::Kind::communication ? '='
         : bar.name == "forward"                ? 'f'
                                                : 'B';
}

const char* colour_of(const Bar& bar) {
  switch (bar.kind) {
    case Bar::Kind::communication:
      return "#e39b3b";
    case Bar::Kind::update:
      return "#8a6bbf";
    case Bar::Kind::compute:
      return bar.name == "forward" ? "#4c8bd6" : "#5aa469";
  }
  return "";
}

/// The track of a rank's own work, or that of its messages.
std::string draw_track(const Timeline& timeline, bool messages, double scale, int columns) {
  std::string track(static_cast<std::size_t>(columns), '.');
  for (const Bar& bar : timeline.bars) {
    if ((bar.kind == Bar::Kind::communication) != messages) {
      continue;
    }
    const auto begin = static_cast<std::size_t>(std::lround(bar.begin * scale));
    const auto end = static_cast<std::size_t>(std::lround(bar.end * scale));
    for (std::size_t i = begin; i < end; ++i) {
      track[i] = messages && i == begin ? '|' : letter_of(bar);
    }
  }
  return track;
}

}  // namespace

std::string draw_text(const NamedTimelines& timelines, int columns) {
  const double all = longest(timelines);
  const double scale = all > 0 ? columns / all : 0;
  std::string picture;
  for (const auto& [name, timeline] : timelines) {
    picture += fmt::format("{:<10} rank {}\n{:<10} link {}\n", name, draw_track(timeline, false, scale, columns), "",
                           draw_track(timeline, true, scale, columns));
  }
  return picture;
}

std::string draw_svg(const NamedTimelines& timelines, const std::string& title) {
  constexpr double kTrack = 22;
  constexpr double kGap = 12;
  TimelinePicture picture(longest(timelines), 130);
  double top = TimelinePicture::kTop;
  for (const auto& [name, timeline] : timelines) {
    picture.name_row(top, name);
    picture.name_row(top + kTrack, "reductions");
    for (const Bar& bar : timeline.bars) {
      const bool travels = bar.kind == Bar::Kind::communication;
      picture.add(
          {bar.begin, bar.end, top + (travels ? kTrack : 0), kTrack - 3, colour_of(bar), 1, bar.name, bar.name});
    }
    top += 2 * kTrack + kGap;
  }
  return picture.svg(top, title);
}

}  // namespace stagecoach
