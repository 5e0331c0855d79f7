#include "chapters/compare/svg.h"

#include <iterator>

namespace stagecoach {

const char* run_colour(std::size_t run) {
  constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf",
                                      "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#003f5c", "#665191"};
  return kColours[run % std::size(kColours)];
}

std::string svg_text(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  std::size_t begin = text.size() > kLongest ? text.size() - kLongest : 0;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80) {
    ++begin;  // not within a character
  }
  std::string safe = begin > 0 ? "\u2026" : "";
  for (const char c : text.substr(begin)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace stagecoach
