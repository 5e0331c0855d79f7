#pragma once
/// @file
/// Colours that people with any colour vision can tell apart. Source: Okabe and Ito, "Color Universal Design", 2008.

#include <array>
#include <cstddef>

namespace stagecoach {

/// A colour for SVG, and the nearest of xterm's 256 colours (by number) for a terminal.
struct Colour {
  const char* svg;
  int terminal;
  int terminal_light;  ///< a lighter shade of it
  int terminal_dark;   ///< a darker one
};

inline constexpr Colour kSkyBlue{"#56b4e9", 74, 117, 67};
inline constexpr Colour kOrange{"#e69f00", 214, 222, 172};
inline constexpr Colour kYellow{"#f0e442", 227, 230, 185};
inline constexpr Colour kGreen{"#009e73", 36, 79, 29};
inline constexpr Colour kPurple{"#cc79a7", 175, 218, 132};
inline constexpr Colour kVermilion{"#d55e00", 166, 209, 130};
inline constexpr Colour kBlue{"#0072b2", 32, 110, 25};
inline constexpr Colour kBlack{"#000000", 244, 250, 240};
inline constexpr const char* kIdleGrey = "#e4e4e4";

/// Returns the i-th colour for boxes with black text. The list repeats after the last colour.
inline const Colour& fill_colour(std::size_t i) {
  static constexpr std::array kFills{kSkyBlue, kOrange, kGreen, kYellow, kPurple, kVermilion};
  return kFills[i % kFills.size()];
}

/// The style of a curve. The first curves differ in colour, later ones also in their dashes.
struct Stroke {
  const char* colour;
  const char* dash;  ///< as in stroke-dasharray; empty for a solid line
};
inline Stroke curve_stroke(std::size_t i) {
  constexpr std::array kColours{kBlue, kVermilion, kGreen, kPurple, kOrange, kSkyBlue, kBlack};
  constexpr std::array kDashes{"", "7 3", "2 2", "9 3 2 3"};
  return {kColours[i % kColours.size()].svg, kDashes[i / kColours.size() % kDashes.size()]};
}

}  // namespace stagecoach
