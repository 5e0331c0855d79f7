#pragma once
/// @file
/// What drawings as text need to know of where they are shown.

namespace stagecoach {

struct Terminal {
  int columns = 80;
  bool colours = false;
};

/// Standard output. Its width is that of the environment's COLUMNS, else the terminal's own, else 80: so what is
/// written to a file does not depend on the window. A terminal gets colours unless the environment has NO_COLOR.
Terminal standard_output();

}  // namespace stagecoach
