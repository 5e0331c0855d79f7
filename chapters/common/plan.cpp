#include "chapters/common/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "chapters/common/bug_hooks.h"
#include "chapters/common/open.h"
#include "core/base/text_file.h"
#include "core/base/throw_if.h"
#include "datasets/shares.h"
#include "parallel/comm/link_direction.h"
#include "parallel/data_parallel/buckets.h"
#include "parallel/pipeline/fastest_split.h"
#include "parallel/schedule/check.h"
#include "parallel/schedule/gradient_order.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"
#include "parallel/schedule/text.h"
#include "parallel/schedule/traffic.h"

namespace stagecoach {
namespace {

/// Reads a user's own table. Adds a note if actions in it are ignored.
Schedule schedule_from_file(const Settings& settings, const std::string& path, std::vector<std::string>& notes) {
  int left_out = 0;
  Schedule schedule = schedule_from_text(read_text(path, "check the file given as --schedule"), path, &left_out);
  require_legal(schedule, path);
  throw_if<UsageError>(schedule.is_lowered && *settings.pipeline.receives != kDefaultReceives,
                       "--receives {}: the table in {} already lists its receives; leave out --receives",
                       settings.pipeline.receives.text(), path);
  if (left_out > 0) {
    notes.push_back(fmt::format("{} actions of {} (waits, UNSHARD, RESHARD) are ignored", left_out, path));
  }
  throw_if<UsageError>(
      schedule.rank_count() != settings.world.ranks || schedule.microbatches != settings.training.microbatches,
      "--schedule {}: the table is for {} ranks and {} micro-batches, the run has {} and {}; give --ranks {} "
      "--microbatches {}",
      path, schedule.rank_count(), schedule.microbatches, settings.world.ranks, settings.training.microbatches,
      schedule.rank_count(), schedule.microbatches);
  return schedule;
}

Schedule schedule_of(const Settings& settings, int layers, std::vector<std::string>& notes) {
  const std::string name = is_by_hand(settings.pipeline) ? "gpipe" : settings.pipeline.schedule;
  if (find_schedule(name) == nullptr) {
    return schedule_from_file(settings, name, notes);
  }
  // Throws early for too many stages.
  static_cast<void>(split_by_layers(layers, settings.world.ranks * settings.pipeline.chunks));
  try {
    return make_schedule(name, settings.world.ranks, static_cast<int>(settings.training.microbatches),
                         settings.pipeline.chunks, settings.pipeline.group);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("--schedule {}", error.what()));
  }
}

/// Returns the table of --schedule with the messages that it needs, and adds notes on it.
Schedule table_of(const Settings& settings, int layers, std::vector<std::string>& notes) {
  Schedule schedule = schedule_of(settings, layers, notes);
  if (!schedule.is_lowered) {
    schedule = lower_for(settings.pipeline, schedule);
  }
  const auto order = notes_on_order(schedule);
  notes.insert(notes.end(), order.begin(), order.end());
  return schedule;
}

/// Sets the ranks of the world that run the schedule, and the links between each stage and the next one.
void set_pipelines(Plan& plan, RankGroups pipelines) {
  plan.pipelines = std::move(pipelines);
  const Network& network = plan.world.network;
  std::vector<Link> slow;  // where a pipeline goes from node to node
  for (int s = 1; s < plan.stages(); ++s) {
    slow.push_back(network.between_any(plan.pipelines, plan.first_rank(s - 1), plan.first_rank(s)));
  }
  for (const std::vector<int>& pipeline : plan.pipelines) {
    std::vector<Link> links = slow;
    for (int s = 1; s < plan.stages(); ++s) {
      const auto rank = [&](int stage) { return pipeline[static_cast<std::size_t>(plan.first_rank(stage))]; };
      if (network.is_on_one_node(rank(s - 1), rank(s))) {
        links[static_cast<std::size_t>(s - 1)] = network.within_node();
      }
    }
    if (std::find(plan.links.begin(), plan.links.end(), links) == plan.links.end()) {
      plan.links.push_back(std::move(links));
    }
  }
}

/// Returns the bytes of a stage's gradients in the order in which they arrive: from the last layer to the first; of
/// each layer the weight before the bias, as autograd computes them.
std::vector<std::int64_t> gradient_bytes(const Module& stage) {
  std::vector<std::int64_t> bytes;
  std::string layer;
  std::ptrdiff_t place = 0;  // in the layer
  for (const auto& [name, shape] : stage.parameter_shapes()) {
    const std::string its_layer = name.substr(0, name.rfind('.'));
    place = its_layer == layer ? place + 1 : 0;
    layer = its_layer;
    bytes.insert(bytes.begin() + place, shape.numel() * static_cast<std::int64_t>(sizeof(float)));
  }
  return bytes;
}

/// Returns the seconds of the reduction of each stage's gradients over the pipelines of `mesh`: a ring per bucket.
std::vector<double> reductions_of(const Plan& plan, const MeshSizes& mesh, const RankOrder& order) {
  const std::set<int> first = first_reduced(plan.schedule);
  std::vector<double> seconds;
  for (const auto& layers : stages_of(*plan.model, plan.split)) {
    const auto stage = static_cast<int>(seconds.size());
    const Link link = link_of_stage(plan, stage, MeshDirection::data, mesh, order);
    BucketCaps caps = plan.settings.data_parallel.caps();
    caps.first = first.contains(stage) ? caps.first : caps.rest;
    seconds.push_back(reduction_seconds(gradient_bytes(*layers), caps, link, mesh.data));
  }
  return seconds;
}

/// Returns the settings of each of the pipelines of `mesh`, which share the batches of `settings`.
Settings settings_of_pipeline(const Settings& settings, const MeshSizes& mesh) {
  Settings pipeline_settings = settings;
  pipeline_settings.world.ranks = mesh.pipeline;
  pipeline_settings.training.batch_size = share_of(settings.training.batch_size, 0, mesh.data).count;
  pipeline_settings.training.microbatches =
      std::min(settings.training.microbatches, pipeline_settings.training.batch_size);
  return pipeline_settings;
}

/// Lets ranks meet in updates: all where gradients are clipped and no rank has all of them (see sums_over_ranks), with
/// what their sum takes; the two with a tied weight (see tie_ranks).
void set_rendezvous(Plan& plan) {
  const bool is_whole = plan.settings.data_parallel.mesh->tensor == 1 &&
                        std::all_of(plan.layers.begin(), plan.layers.end(),
                                    [&](const auto& layer) { return layer.second == plan.layers.front().second; });
  if (plan.settings.training.clip_norm > 0 && !is_whole) {
    plan.schedule.rendezvous.resize(static_cast<std::size_t>(plan.schedule.rank_count()));
    std::iota(plan.schedule.rendezvous.begin(), plan.schedule.rendezvous.end(), 0);
    const auto ranks = static_cast<int>(plan.pipelines.size()) * plan.schedule.rank_count();
    const auto bytes = static_cast<double>(plan.model->parameter_shapes().size() * sizeof(double));
    plan.norm_sum = ring_all_reduce_seconds(plan.world.network.among_first(ranks), ranks, bytes);
  } else if (plan.tied && plan.tied->first_rank != plan.tied->copy_rank) {
    plan.schedule.rendezvous = {plan.tied->first_rank, plan.tied->copy_rank};
  }
}

}  // namespace

bool is_by_hand(const PipelineSettings& pipeline) { return pipeline.schedule == "by-hand"; }

int receives_of(const PipelineSettings& pipeline) { return is_by_hand(pipeline) ? 0 : *pipeline.receives; }

Schedule lower_for(const PipelineSettings& pipeline, const Schedule& computations) {
  const ScheduleKind* kind = find_schedule(pipeline.schedule);  // null for a file
  Schedule schedule =
      lower(computations, {.receives = receives_of(pipeline), .sends_wait = kind != nullptr && kind->sends_wait});
  if (const auto problems = check(schedule); !problems.empty()) {
    throw UsageError(
        fmt::format("--receives {} with --schedule {}: {}; give --receives ahead, or --schedule interleaved, which has "
                    "the same order but sends that do not wait",
                    pipeline.receives.text(), pipeline.schedule, problems.front()));
  }
  return schedule;
}

RankRole role_of(const Plan& plan) {
  return {.layers = plan.layers,
          .stages = plan.stages_text(),
          .loss_rank = plan.schedule.stage_to_rank.back(),
          .profile = plan.profile_json};
}

Split split_of(const PipelineSettings& pipeline, const Sequential& model, const Schedule& schedule,
               const std::vector<LayerProfile>& profile) {
  const int stages = schedule.stage_count();
  const std::vector<int>& replicas = schedule.replicas;
  if (!pipeline.split.empty()) {
    throw_if<UsageError>(
        static_cast<int>(pipeline.split->size()) != stages, "--split {0}: expected {3} stages for {2}, got {1}",
        pipeline.split.text(), pipeline.split->size(),
        replicas.empty() ? "the ranks and the schedule" : fmt::format("--replicas {}", fmt::join(replicas, ",")),
        stages);
    return *pipeline.split;
  }
  if (pipeline.balance == Balance::layers) {
    return split_by_layers(model.size(), stages);
  }
  if (pipeline.balance == Balance::params) {
    return split_by_costs(parameter_costs(model), schedule);
  }
  return fastest_split(profile, schedule, pipeline.recompute ? Stage::Recompute::yes : Stage::Recompute::no);
}

Plan::Plan(const Settings& settings, const Dataset& data, const std::shared_ptr<const LayerFactory>& factory,
           RankGroups groups)
    : PlannedModel(planned_model(settings, data, factory)),
      schedule(table_of(settings, model->size(), notes)),
      split(split_of(settings.pipeline, *model, schedule, profile)) {
  put_bug_into(schedule, settings.training.inject);  // last, as no step with a bug can be simulated
  place_layers(settings.training, std::move(groups));
}

void Plan::place_layers(const TrainingSettings& training, RankGroups groups) {
  if (groups.empty()) {
    std::vector<int>& all = groups.emplace_back(schedule.ranks.size());
    std::iota(all.begin(), all.end(), 0);
  }
  set_pipelines(*this, std::move(groups));
  shapes = shapes_entering(*model, split, input_shape(training, 1));
  if (training.tie_head) {
    tied = {first_rank(0), first_rank(stages() - 1),
            static_cast<double>(parameter_count(*model->layer(0))) * sizeof(float)};
  }
  int layer = 0;
  for (int s = 0; s < stages(); ++s) {
    for (int i = 0; i < split[static_cast<std::size_t>(s)]; ++i, ++layer) {
      layers.emplace_back(model->name(layer), first_rank(s));
    }
  }
  set_rendezvous(*this);
}

void launch_ranks(const World& world, Bug inject, const std::function<void(Rank&)>& body) {
  launch(world, [&](Rank& rank) {
    const std::unique_ptr<Communicator> buggy = communicator_with(inject, rank.comm);
    Rank launched{rank.index, rank.world, rank.device, buggy ? *buggy : rank.comm};
    body(launched);
  });
}

std::vector<std::string> schedules_with_default(const std::string& first) {
  std::vector<std::string> names = schedule_names();
  const auto found = std::find(names.begin(), names.end(), first);
  std::rotate(names.begin(), found, found + 1);
  return names;
}

std::vector<std::string> mesh_schedules() {
  return {"1f1b",       "gpipe",          "zb-h1", "naive", "interleaved", "interleaved-sync",
          "foldx_aiao", "interleaved-zb", "zb-h2", "zbv",   "dualpipev"};
}

Plan make_pipeline_plan(const Settings& settings, const MeshSizes& mesh, const RankOrder& order, const Dataset& data,
                        const std::shared_ptr<const LayerFactory>& factory) {
  Plan plan(settings_of_pipeline(settings, mesh), data, factory, mesh_groups(MeshDirection::pipeline, mesh, order));
  plan.settings = settings;
  plan.schedule = with_reductions(plan.schedule);
  plan.last_images = last_images(settings, data, plan.images);
  for (auto& [layer, rank] : plan.layers) {
    rank = rank_at({.pipeline = rank}, mesh, order);
  }
  plan.reductions = reductions_of(plan, mesh, order);
  return plan;
}

std::vector<double> message_bytes(const Plan& plan, std::int64_t microbatch) {
  std::vector<double> bytes;
  for (std::size_t s = 1; s < plan.shapes.size(); ++s) {
    bytes.push_back(static_cast<double>(plan.shapes[s].with(0, microbatch).numel() * sizeof(float)));
  }
  return bytes;
}

std::vector<double> relative_sizes(const Plan& plan, const std::vector<std::int64_t>& microbatches) {
  std::vector<double> sizes(microbatches.size());
  std::transform(microbatches.begin(), microbatches.end(), sizes.begin(), [&](std::int64_t images) {
    return static_cast<double>(images) / static_cast<double>(plan.microbatch);
  });
  return sizes;
}

void set_messages(const Plan& plan, std::int64_t microbatch, Costs& costs) {
  costs.bytes = message_bytes(plan, microbatch);
  costs.other_pipelines.clear();
  for (const std::vector<Link>& links : plan.links) {
    MessageTimes& times = costs.other_pipelines.emplace_back();
    for (std::size_t border = 0; border < links.size(); ++border) {
      times.message.push_back(links[border].seconds(costs.bytes[border]));
      times.transfer.push_back(links[border].transfer_seconds(costs.bytes[border]));
    }
  }
  costs.message = costs.other_pipelines.front().message;
  costs.transfer = costs.other_pipelines.front().transfer;
  costs.other_pipelines.erase(costs.other_pipelines.begin());
  costs.eager_bytes = kEagerBytes;
  if (plan.schedule.batch == 0) {
    costs.sizes = relative_sizes(plan, micro_batch_sizes(plan.images, plan.schedule.microbatches));
    costs.sizes.resize(static_cast<std::size_t>(plan.schedule.microbatches));  // of few images, some do not exist
  }
}

Costs costs_of(const Plan& plan, std::int64_t microbatch) {
  Costs costs = costs_of_stages(plan.profile, plan.split, plan.recompute);
  set_messages(plan, microbatch, costs);
  add_collectives(plan, costs);
  return costs;
}

std::vector<double> gradient_bytes(const Plan& plan) {
  std::vector<double> bytes;
  for (const auto& stage : stages_of(*plan.model, plan.split)) {
    bytes.push_back(static_cast<double>(parameter_count(*stage)) * sizeof(float));
  }
  return bytes;
}

Link link_of_stage(const Plan& plan, int stage, MeshDirection direction, const MeshSizes& mesh,
                   const RankOrder& order) {
  const RankGroups all = mesh_groups(direction, mesh, order);
  RankGroups groups;
  std::copy_if(all.begin(), all.end(), std::back_inserter(groups), [&](const std::vector<int>& group) {
    return position_of(group.front(), mesh, order).pipeline == plan.first_rank(stage);
  });
  return plan.world.network.among_any(groups, all);
}

double tied_seconds(const Plan& plan, int rank) {
  if (!plan.tied || plan.tied->first_rank == plan.tied->copy_rank ||
      (rank != plan.tied->first_rank && rank != plan.tied->copy_rank)) {
    return 0;
  }
  const auto& [first, copy, bytes] = *plan.tied;
  return 2 * plan.world.network.between_any(plan.pipelines, first, copy).seconds(bytes);
}

double exchange_seconds(const Plan& plan, const Action& action, std::int64_t images) {
  if (action.operation == Operation::update) {
    return tied_seconds(plan, plan.first_rank(action.stage));
  }
  const auto found = plan.exchanges.find(images);
  if (found == plan.exchanges.end()) {
    return 0;
  }
  const CollectiveSeconds& stage = found->second[static_cast<std::size_t>(action.stage)];
  switch (action.operation) {
    case Operation::forward:
      return stage.forward;
    case Operation::backward:
      return stage.backward;
    case Operation::backward_input:
      return stage.backward_input;
    case Operation::backward_weight:
      return stage.backward_weight;
    default:
      return 0;
  }
}

void add_collectives(const Plan& plan, Costs& costs) {
  for (int stage = 0; stage < plan.stages(); ++stage) {
    for (const auto& [operation, seconds] : {std::pair{Operation::forward, &costs.forward},
                                             {Operation::backward, &costs.backward},
                                             {Operation::backward_input, &costs.backward_input},
                                             {Operation::backward_weight, &costs.backward_weight}}) {
      (*seconds)[static_cast<std::size_t>(stage)] += exchange_seconds(plan, {operation, stage, 0}, plan.microbatch);
    }
  }
  if (!plan.reductions.empty()) {
    costs.average = plan.reductions;
  }
  if (plan.tied) {
    costs.update.resize(plan.schedule.ranks.size());
    for (std::size_t rank = 0; rank < costs.update.size(); ++rank) {
      costs.update[rank] += tied_seconds(plan, static_cast<int>(rank));
    }
  }
  costs.norm_exchange = plan.norm_exchange;
  costs.norm_sum = plan.norm_sum;
}

}  // namespace stagecoach
