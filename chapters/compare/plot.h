#pragma once
/// @file
/// A comparison as a picture.

#include <string>

#include "chapters/compare/comparison.h"

namespace stagecoach {

/// An SVG picture that needs no other file. On the left a bar a run, as long as its epoch time, with an outlined bar
/// for the time that was predicted; on the right the training loss over the epochs, a line a run.
std::string plot_svg(const Comparison& comparison);

}  // namespace stagecoach
