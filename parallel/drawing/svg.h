#pragma once
/// @file
/// Builds an SVG figure element by element. Only this class writes SVG. It escapes all text, and the figure needs no
/// other files.

#include <string>
#include <utility>
#include <vector>

#include "parallel/drawing/palette.h"

namespace stagecoach {

class Svg {
 public:
  /// In pixels; y grows downward.
  struct Box {
    double left;
    double top;
    double width;
    double height;
    double right() const { return left + width; }
    double bottom() const { return top + height; }
  };
  enum class Anchor { start, middle, end };
  struct Font {
    Anchor anchor = Anchor::start;
    double size = kFontSize;
    bool bold = false;
    const char* colour = "#000000";
  };
  using Points = std::vector<std::pair<double, double>>;

  static constexpr double kFontSize = 11;
  static constexpr const char* kAxisColour = "#444444";
  static constexpr const char* kGridColour = "#dddddd";

  /// Returns the approximate width of `text` at that size; the font in which the figure will be shown is not known.
  static double width_of(const std::string& text, double size = kFontSize);

  /// Draws a filled box. `title` is shown when the pointer is on it.
  void box(const Box& box, const char* fill, double opacity = 1, const std::string& title = "");
  /// Draws only the outline of a box.
  void outline(const Box& box, const char* colour, const std::string& title = "");
  /// Writes text with its baseline at `y`. If the text does not fit into `max_width` pixels, its beginning is omitted,
  /// as the last parts of a path are the most informative, and the whole text is shown when the pointer is on it. 0
  /// means no limit.
  void text(double x, double y, const std::string& text, Font font, double max_width = 0);
  void text(double x, double y, const std::string& text);
  void line(double x1, double y1, double x2, double y2, const char* colour);
  void curve(const Points& points, const Stroke& stroke);
  void dot(double x, double y, double radius, const char* colour);

  /// Returns the figure on a white background, `width` times `height` pixels.
  std::string str(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace stagecoach
