#include "chapters/common/bugs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "chapters/common/chapter.h"

namespace stagecoach {

namespace {

struct BugEntry {
  Bug bug;
  std::string_view name;      ///< the value of --inject
  std::vector<int> chapters;  ///< those that offer it
  std::string_view mistake;   ///< what is wrong: half a line
};

/// Returns all bugs, in the order of docs/bugs.md.
const std::vector<BugEntry>& bug_museum() {
  static const std::vector<BugEntry> museum{
      {Bug::send_order, "send-order", {4, 5}, "two ranks send to each other first, and each send waits"},
      {Bug::tag_twice, "tag-twice", {3, 5}, "all messages of a direction have one tag, and two receives are swapped"},
      {Bug::gradient_sum, "gradient-sum", {1, 3, 4, 5}, "the micro-batches' gradients are summed, not averaged"},
      {Bug::wiped_gradients, "wiped-gradients", {1}, "zero_grad runs before each micro-batch, not after each step"},
      {Bug::rate_per_rank, "rate-per-rank", {2, 3, 4, 5, 6}, "the learning rate is multiplied by the number of ranks"},
      {Bug::other_labels, "other-labels", {2, 3, 4, 5}, "each rank shuffles with a seed of its own"},
      {Bug::same_shard, "same-shard", {6}, "all ranks train on the first shard of each batch"},
      {Bug::own_seed, "own-seed", {6}, "each rank draws its own initial weights, and none are broadcast"},
      {Bug::skipped_step, "skipped-step", {2, 3, 5, 6}, "rank 1 leaves out the third batch of an epoch"},
      {Bug::unstashed_weights, "unstashed-weights", {4}, "a backward uses the newest weights, not its forward's"},
      {Bug::norm_twice, "norm-twice", {3, 4, 5}, "recompute moves batch norm's running statistics a second time"},
      {Bug::bucket_order, "bucket-order", {6}, "rank 1 reduces its first bucket after the second"},
      {Bug::unused_parameter, "unused-parameter", {6}, "the model has a layer that its forward does not use"},
      {Bug::stale_weights, "stale-weights", {9}, "updated weights are not gathered: each rank sees its own shard only"},
      {Bug::lone_copies, "lone-copies", {9}, "gradients are not summed over the copies of hybrid sharding"},
      {Bug::stale_shard, "stale-shard", {2, 3, 4, 5}, "--resume loads the last rank's shard of an older checkpoint"},
  };
  return museum;
}

}  // namespace

std::string name_of(Bug bug) {
  const auto& all = bug_museum();
  const auto found = std::find_if(all.begin(), all.end(), [&](const BugEntry& entry) { return entry.bug == bug; });
  return found == all.end() ? "" : std::string(found->name);
}

std::vector<std::string> bug_names(int chapter) {
  std::vector<std::string> names;
  for (const BugEntry& entry : bug_museum()) {
    if (includes_chapter(entry.chapters, chapter)) {
      names.emplace_back(entry.name);
    }
  }
  return names;
}

Bug bug_named(const std::string& name) {
  const auto& all = bug_museum();
  return std::find_if(all.begin(), all.end(), [&](const BugEntry& entry) { return entry.name == name; })->bug;
}

std::string bug_list(int chapter) {
  std::string list;
  for (const BugEntry& entry : bug_museum()) {
    if (includes_chapter(entry.chapters, chapter)) {
      list += fmt::format("{:<18} {}\n", entry.name, entry.mistake);
    }
  }
  return list;
}

}  // namespace stagecoach
