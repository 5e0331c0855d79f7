#include "chapters/04_pipedream/stream_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "core/base/throw_if.h"
#include "datasets/shares.h"
#include "parallel/pipeline/partition.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/pipedream.h"

namespace stagecoach {
namespace {

/// Decides which layers and how many ranks each stage has.
Partition choose_stages(const StreamPlan& plan) {
  const Settings& settings = plan.settings;
  if (settings.pipeline.balance == Balance::pipedream && settings.pipeline.split.empty()) {
    return partition(layer_costs(plan.profile, plan.recompute), settings.world.ranks,
                     plan.world.network.among_first(settings.world.ranks));
  }
  const std::vector<int> replicas = replicas_of(settings);
  return {split_of(settings.pipeline, *plan.model, Schedule{contiguous_placement(replicas)}, plan.profile), replicas,
          0};
}

/// Returns the ranks of each stage.
RankGroups ranks_of_stages(const StreamPlan& plan) {
  RankGroups ranks;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    ranks.emplace_back(static_cast<std::size_t>(plan.schedule.replicas_of(stage)));
    std::iota(ranks.back().begin(), ranks.back().end(), plan.first_rank(stage));
  }
  return ranks;
}

/// Returns the seconds that one update of each stage spends on averaging gradients: a ring all-reduce per parameter.
std::vector<double> averaging_seconds(const StreamPlan& plan) {
  const RankGroups ranks = ranks_of_stages(plan);
  std::vector<double> seconds;
  for (const auto& stage : stages_of(*plan.model, plan.split)) {
    const std::vector<int>& replicas = ranks[seconds.size()];
    const Link link = plan.world.network.among(replicas, ranks);
    double sum = 0;
    for (const auto& [name, parameter] : stage->parameter_shapes()) {
      const auto bytes = static_cast<double>(parameter.numel()) * sizeof(float);
      sum += ring_all_reduce_seconds(link, static_cast<int>(replicas.size()), bytes);
    }
    seconds.push_back(sum);
  }
  return seconds;
}

}  // namespace

std::vector<std::int64_t> StreamPlan::microbatch_sizes(std::int64_t images, std::int64_t first_batch) const {
  std::vector<std::int64_t> all;
  for (std::int64_t start = first_batch * batch_size; start < images; start += batch_size) {
    const auto sizes = micro_batch_sizes(std::min(batch_size, images - start), microbatches_per_batch);
    all.insert(all.end(), sizes.begin(), sizes.end());
  }
  return all;
}

Schedule StreamPlan::schedule_for(std::size_t micro_batches) const {
  if (micro_batches == 0) {
    return {schedule, 0, std::vector<std::vector<Action>>(schedule.ranks.size()), microbatches_per_batch, true};
  }
  Schedule part =
      lower(pipedream_schedule(replicas(), static_cast<int>(micro_batches), microbatches_per_batch, versions),
            {.receives = receives});
  part.rendezvous = schedule.rendezvous;
  return part;
}

StreamPlan::StreamPlan(const Settings& settings, const Dataset& data)
    : Plan(planned_model(settings, data)),
      versions(*settings.pipeline.versions),
      batch_size(settings.training.batch_size),
      microbatches_per_batch(static_cast<int>(settings.training.microbatches)),
      receives(receives_of(settings.pipeline)) {
  put_bug_into(versions, settings.training.inject);
  const Partition chosen = choose_stages(*this);
  throw_if<UsageError>(
      is_by_hand(settings.pipeline) &&
          std::any_of(chosen.replicas.begin(), chosen.replicas.end(), [](int n) { return n > 1; }),
      "--schedule by-hand: expected one rank per stage, got --replicas {}; leave out --schedule or --replicas",
      fmt::join(chosen.replicas, ","));
  sizes = relative_sizes(*this, microbatch_sizes(data.size()));
  const auto microbatches = static_cast<int>(sizes.size());
  schedule =
      lower_for(settings.pipeline, pipedream_schedule(chosen.replicas, microbatches, microbatches_per_batch, versions));
  split = chosen.split;
  seconds = chosen.seconds;
  place_layers(settings.training);
  reductions = averaging_seconds(*this);
}

RankRole role_of(const StreamPlan& plan, int rank) {
  RankRole role = role_of(plan);
  role.replica_of = plan.first_rank(plan.schedule.stage_of(rank));
  role.splits_losses = plan.schedule.replicas_of(plan.stages() - 1) > 1;
  return role;
}

Settings with_stages_of(const StreamPlan& plan) {
  Settings settings = plan.settings;
  settings.pipeline.split = fmt::format("{}", fmt::join(plan.split, ","));
  settings.pipeline.replicas = fmt::format("{}", fmt::join(plan.replicas(), ","));
  return settings;
}

}  // namespace stagecoach
