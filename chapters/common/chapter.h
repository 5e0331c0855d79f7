#pragma once
/// @file
/// The description of a chapter program.

#include <algorithm>
#include <string>
#include <vector>

#include "chapters/common/settings.h"

namespace stagecoach {

/// The number of a program that offers the flags of all chapters, for tests.
inline constexpr int kEveryChapter = -1;
/// Returns whether `chapters` has the number `chapter`.
inline bool includes_chapter(const std::vector<int>& chapters, int chapter) {
  return chapter == kEveryChapter || std::find(chapters.begin(), chapters.end(), chapter) != chapters.end();
}

struct Chapter {
  int number = 0;          ///< from 1; says which flags it offers (flag_table.cpp)
  std::string program;     ///< "ch01_single_device"
  std::string title;       ///< one line
  std::string example;     ///< one command
  Settings defaults = {};  ///< the values of flags that are not given
  /// The values of --schedule besides the name of a file; the first is the default.
  std::vector<std::string> schedules = {};
};

}  // namespace stagecoach
