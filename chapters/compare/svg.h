#pragma once
/// @file
/// What all parts of the picture share: its measures, colours and texts.

#include <cstddef>
#include <string>

namespace stagecoach {

// In pixels. Two panels stand side by side.
constexpr double kPanelWidth = 480;
constexpr double kPanelMargin = 60;
constexpr double kPanelTop = 40;

/// A colour for each of twelve runs; then they begin anew.
const char* run_colour(std::size_t run);

/// `text` as the text of an SVG element. Of a long one the end is left: the last parts of a path tell most.
std::string svg_text(const std::string& text);

}  // namespace stagecoach
