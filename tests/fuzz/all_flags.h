#pragma once
/// @file
/// A chapter that offers everything that some chapter does.

#include "chapters/common/chapter.h"
#include "parallel/schedule/schedule_kinds.h"

namespace stagecoach::fuzz {

inline Chapter chapter_of_all_flags() {
  Chapter chapter{.number = kEveryChapter, .program = "ch06_ddp", .title = "All flags.", .example = "ch06_ddp --smoke"};
  chapter.schedules = schedule_names();
  chapter.defaults.data_parallel.mode = DataParallelMode::buckets;
  chapter.defaults.world.ranks = 4;
  chapter.defaults.data_parallel.mesh = "dp=2,pp=2";
  return chapter;
}

}  // namespace stagecoach::fuzz
