#include "parallel/drawing/svg.h"

#include <fmt/format.h>

#include <iterator>

#include "core/base/printable.h"

namespace stagecoach {
namespace {

/// Returns the longest end of `text` that fits.
std::string last_part(const std::string& text, double max_width, double size) {
  std::size_t begin = 0;
  while (begin < text.size() && Svg::width_of("\u2026" + text.substr(begin), size) > max_width) {
    do {
      ++begin;
    } while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80);  // a whole character
  }
  return "\u2026" + text.substr(begin);
}

std::string title_element(const std::string& title) {
  return title.empty() ? "" : fmt::format("<title>{}</title>", xml_text(title));
}

}  // namespace

double Svg::width_of(const std::string& text, double size) {
  std::size_t characters = 0;
  for (const char c : text) {
    characters += (static_cast<unsigned char>(c) & 0xc0U) == 0x80 ? 0 : 1;
  }
  return 0.6 * size * static_cast<double>(characters);
}

void Svg::box(const Box& box, const char* fill, double opacity, const std::string& title) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"{}>{}</rect>\n",
                 box.left, box.top, box.width, box.height, fill,
                 opacity == 1 ? "" : fmt::format(" fill-opacity=\"{:.2f}\"", opacity), title_element(title));
}

void Svg::outline(const Box& box, const char* colour, const std::string& title) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"{}\">{}"
                 "</rect>\n",
                 box.left, box.top, box.width, box.height, colour, title_element(title));
}

void Svg::text(double x, double y, const std::string& text) { this->text(x, y, text, Font{}); }

void Svg::text(double x, double y, const std::string& text, Font font, double max_width) {
  constexpr const char* kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  const bool fits = max_width == 0 || width_of(text, font.size) <= max_width;
  fmt::format_to(std::back_inserter(body_), "<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}{} fill=\"{}\">{}{}</text>\n", x, y,
                 kAnchors[static_cast<int>(font.anchor)],
                 font.size == kFontSize ? "" : fmt::format(" font-size=\"{:.0f}\"", font.size),
                 font.bold ? " font-weight=\"bold\"" : "", font.colour,
                 xml_text(fits ? text : last_part(text, max_width, font.size)), fits ? "" : title_element(text));
}

void Svg::line(double x1, double y1, double x2, double y2, const char* colour) {
  fmt::format_to(std::back_inserter(body_),
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"1\"/>\n",
                 x1, y1, x2, y2, colour);
}

void Svg::curve(const Points& points, const Stroke& stroke) {
  std::string places;
  for (const auto& [x, y] : points) {
    fmt::format_to(std::back_inserter(places), "{}{:.1f},{:.1f}", places.empty() ? "" : " ", x, y);
  }
  fmt::format_to(std::back_inserter(body_),
                 "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>\n",
                 places, stroke.colour, stroke.dash);
}

void Svg::dot(double x, double y, double radius, const char* colour) {
  fmt::format_to(std::back_inserter(body_), "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\"/>\n", x, y,
                 radius, colour);
}

std::string Svg::str(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"{:.0f}\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
      width, height, kFontSize, body_);
}

}  // namespace stagecoach
