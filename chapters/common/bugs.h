#pragma once
/// @file
/// The bug museum: known bugs of distributed training that `--inject NAME` puts into a run, for students to find.
/// docs/bugs.md tells of each. Nothing below chapters/ knows of them: bug_hooks.h puts them into a run from outside.

#include <string>
#include <vector>

namespace stagecoach {

enum class Bug {
  none,
  send_order,
  tag_twice,
  gradient_sum,
  wiped_gradients,
  rate_per_rank,
  other_labels,
  same_shard,
  own_seed,
  skipped_step,
  unstashed_weights,
  norm_twice,
  bucket_order,
  unused_parameter,
  stale_shard,
  stale_weights,
  lone_copies,
};

/// Returns the value of --inject for a bug; "" for none.
std::string name_of(Bug bug);
/// Returns the names of the bugs that a chapter offers; kEveryChapter offers all.
std::vector<std::string> bug_names(int chapter);
/// Returns the bug of that name, which must be one of bug_names().
Bug bug_named(const std::string& name);
/// Returns the answer to `--inject list`: one line per bug of the chapter.
std::string bug_list(int chapter);

}  // namespace stagecoach
