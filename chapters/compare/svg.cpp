#include "chapters/compare/svg.h"

#include <iterator>

#include "core/printable.h"

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
  return (begin > 0 ? "\u2026" : "") + xml_text(text.substr(begin));
}

}  // namespace stagecoach
