#pragma once
/// @file
/// An SVG picture in which time runs to the right.

#include <string>

namespace stagecoach {

class TimelinePicture {
 public:
  /// Of `seconds` (or any unit); `left` pixels stay free for words.
  explicit TimelinePicture(double seconds, double left = 60);

  /// Something that takes from `begin` to `end`; top and height in pixels.
  struct Box {
    double begin;
    double end;
    double top;
    double height;
    const char* colour;
    double opacity;
    std::string title;  ///< shown when the pointer is on it
    std::string label;  ///< written into it where there is room
  };
  void add(const Box& box);
  /// Words at the left of the row that begins at `top`.
  void name_row(double top, const std::string& words);

  /// Above all rows.
  static constexpr double kTop = 34;
  std::string svg(double height, const std::string& title) const;

 private:
  double left_;
  double scale_;  // pixels a second
  std::string body_;
};

}  // namespace stagecoach
