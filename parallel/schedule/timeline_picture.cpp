#include "parallel/schedule/timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/printable.h"

namespace stagecoach {
namespace {

constexpr double kWidth = 960;
constexpr double kFont = 11;
constexpr double kLetter = 6.5;  // width

}  // namespace

TimelinePicture::TimelinePicture(double seconds, double left)
    : left_(left), scale_(seconds > 0 ? (kWidth - left - 10) / seconds : 0) {}

void TimelinePicture::add(const Box& box) {
  const auto out = std::back_inserter(body_);
  const double width = (box.end - box.begin) * scale_;
  fmt::format_to(out,
                 "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
                 "fill-opacity=\"{:.2f}\" stroke=\"#ffffff\"><title>{}</title></rect>\n",
                 left_ + box.begin * scale_, box.top, width, box.height, box.colour, box.opacity, xml_text(box.title));
  if (width > kLetter * static_cast<double>(box.label.size())) {
    fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"{:.0f}\">{}</text>\n",
                   left_ + (box.begin + box.end) / 2 * scale_, box.top + 0.72 * box.height,
                   std::min(kFont, box.height - 1), xml_text(box.label));
  }
}

void TimelinePicture::name_row(double top, const std::string& words) {
  fmt::format_to(std::back_inserter(body_), "<text x=\"10\" y=\"{:.1f}\">{}</text>\n", top + 15, xml_text(words));
}

std::string TimelinePicture::svg(double height, const std::string& title) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"{}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>\n{}</svg>\n",
      kWidth, height, kFont, xml_text(title), body_);
}

}  // namespace stagecoach
