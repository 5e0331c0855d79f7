#include "chapters/06_ddp/draw_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

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
  constexpr double kWidth = 960;
  constexpr double kLeft = 130;
  constexpr double kTop = 34;
  constexpr double kTrack = 22;
  constexpr double kGap = 12;
  const double all = longest(timelines);
  const double scale = all > 0 ? (kWidth - kLeft - 10) / all : 0;
  const double height = kTop + (2 * kTrack + kGap) * static_cast<double>(timelines.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>\n",
      kWidth, height, title);
  const auto out = std::back_inserter(svg);
  double top = kTop;
  for (const auto& [name, timeline] : timelines) {
    fmt::format_to(out, "<text x=\"10\" y=\"{:.1f}\">{}</text>\n<text x=\"10\" y=\"{:.1f}\">reductions</text>\n",
                   top + 14, name, top + kTrack + 14);
    for (const Bar& bar : timeline.bars) {
      const double y = bar.kind == Bar::Kind::communication ? top + kTrack : top;
      const double width = (bar.end - bar.begin) * scale;
      fmt::format_to(out,
                     "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
                     "stroke=\"#ffffff\"><title>{}</title></rect>\n",
                     kLeft + bar.begin * scale, y, width, kTrack - 3, colour_of(bar), bar.name);
      if (width > 6.5 * static_cast<double>(bar.name.size())) {
        fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                       kLeft + (bar.begin + bar.end) / 2 * scale, y + 14, bar.name);
      }
    }
    top += 2 * kTrack + kGap;
  }
  return svg + "</svg>\n";
}

}  // namespace stagecoach
