#pragma once
/// @file
/// The properties of a terminal that text drawings depend on.

namespace stagecoach {

struct Terminal {
  int columns = 80;
  bool colours = false;
};

/// Returns the properties of standard output. Its width is COLUMNS from the environment, otherwise the terminal's own
/// width, otherwise 80, so output to a file does not depend on the window. A terminal gets colours unless NO_COLOR is
/// set in the environment.
Terminal standard_output();

}  // namespace stagecoach
