#pragma once
/// @file
/// A chapter that offers everything that some chapter does.

#include "chapters/common/flags.h"
#include "chapters/common/settings.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach::fuzz {

inline Chapter chapter_of_all_flags() {
  Chapter chapter{.program = "ch06_ddp", .title = "All flags.", .example = "ch06_ddp --smoke", .flags = {}};
  for (const auto& [flag, reason] : flags_of_some_chapters()) {
    chapter.flags.insert(flag);
  }
  chapter.schedules = schedule_names();
  chapter.modes = {"buckets", "single", "parameter", "central", "replicate"};
  chapter.defaults.data_parallel.mode = "buckets";
  chapter.defaults.world.ranks = 4;
  chapter.defaults.data_parallel.mesh = "dp=2,pp=2";
  return chapter;
}

}  // namespace stagecoach::fuzz
