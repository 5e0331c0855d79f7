#pragma once
/// @file
/// An SVG figure, element by element: the only place that writes SVG. Every text is escaped, and no file is needed
/// besides the figure.

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

  /// How wide `text` is in that size, about: a figure cannot know the font that it is shown in.
  static double width_of(const std::string& text, double size = kFontSize);

  /// `title` is shown when the pointer is on the box.
  void box(const Box& box, const char* fill, double opacity = 1, const std::string& title = "");
  /// A box's outline alone.
  void outline(const Box& box, const char* colour, const std::string& title = "");
  /// `y` is the text's baseline. Where the text does not fit into `room` pixels its beginning is left out, as the last
  /// parts of a path tell most; then the whole text is shown when the pointer is on it. 0 is room for all.
  void text(double x, double y, const std::string& text, Font font, double room = 0);
  void text(double x, double y, const std::string& text);
  void line(double x1, double y1, double x2, double y2, const char* colour, double width = 1);
  void curve(const Points& points, const Stroke& stroke, double width = 2);
  void dot(double x, double y, double radius, const char* colour);

  /// The figure on a white ground, `width` times `height` pixels.
  std::string str(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace stagecoach
