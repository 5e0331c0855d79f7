#pragma once
/// @file
/// How a model is distributed over ranks. It is decided once, before the ranks start.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chapters/common/planned_model.h"
#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/layer_factory.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/gather.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/schedule.h"
#include "parallel/training/training_state.h"

namespace stagecoach {

/// The seconds that collectives add to each computation of a micro-batch.
struct CollectiveSeconds {
  double forward = 0;
  double backward = 0;
  double backward_input = 0;   ///< where a schedule splits the backward
  double backward_weight = 0;  ///< likewise
};

/// What --tie-head keeps equal in the first and the last stage of a pipeline.
struct TiedStages {
  int first_rank = 0;  ///< of the pipeline
  int copy_rank = 0;
  double bytes = 0;  ///< of the weights: in each step the gradient goes to the first rank, and the new values come back
};

struct Plan : PlannedModel {
  /// Follows --ranks, --schedule, --chunks, --group, --split and --balance. The table of a loop by hand is that of
  /// GPipe. `factory` makes the layers that the ranks compute, if they are cut. `groups` are the ranks of the world
  /// that run each pipeline; empty: all are one. Throws UsageError, which says what is possible, for an impossible
  /// combination.
  Plan(const Settings& settings, const Dataset& data, const std::shared_ptr<const LayerFactory>& factory = nullptr,
       RankGroups groups = {});

  Schedule schedule;               ///< of a step with all its micro-batches; lowered and legal
  Split split;                     ///< layers per stage
  std::vector<Shape> shapes;       ///< of each stage's input, for one image: [1, …]
  LayerRanks layers;               ///< which rank holds which layer
  std::optional<TiedStages> tied;  ///< with --tie-head
  /// Of each stage with its tensor-parallel group, by the images of a micro-batch, if they are predicted.
  std::map<std::int64_t, std::vector<CollectiveSeconds>> exchanges;
  std::vector<double> reductions;     ///< seconds of each stage's gradient reduction, if they are predicted
  std::vector<double> norm_exchange;  ///< seconds in which each rank joins its gradients for their norm, if any
  double norm_sum = 0;                ///< seconds in which all ranks sum its squares, where they meet
  /// Between each stage and the next one: [stages - 1] for each set of links that some pipeline has, the first one's
  /// first.
  std::vector<std::vector<Link>> links;
  RankGroups pipelines;  ///< that run the schedule, as ranks of the world: [pipelines][its ranks]

  std::string stages_text() const { return stagecoach::stages_text(split, schedule); }
  int stages() const { return schedule.stage_count(); }
  int first_rank(int stage) const { return schedule.stage_to_rank[static_cast<std::size_t>(stage)]; }

 protected:
  /// For a chapter that makes a schedule and a split of its own, and then calls place_layers.
  explicit Plan(PlannedModel planned) : PlannedModel(std::move(planned)) {}
  /// Fills in what follows from the model, the split and the schedule: shapes, layers, links, pipelines, and whether
  /// ranks meet in updates.
  void place_layers(const TrainingSettings& training, RankGroups groups = {});
};

/// Returns whether the chapter runs its handwritten loop instead of a table. That loop posts each receive just before
/// its use.
bool is_by_hand(const PipelineSettings& pipeline);

/// Calls launch(): the ranks run `body`, with the bug in their communicator if it belongs there.
void launch_ranks(const World& world, Bug inject, const std::function<void(Rank&)>& body);
inline void launch_ranks(const Plan& plan, const std::function<void(Rank&)>& body) {
  launch_ranks(plan.world, plan.settings.training.inject, body);
}

/// Returns the names of all schedules, with `first`, the default, before the others.
std::vector<std::string> schedules_with_default(const std::string& first);
/// Returns the values of --schedule for the pipelines of a mesh; the first is the default.
std::vector<std::string> mesh_schedules();
/// Returns the plan of each of the pipelines of `mesh`, which share the batches of `settings`. Its schedule lists when
/// each stage's gradients are reduced over the pipelines.
Plan make_pipeline_plan(const Settings& settings, const MeshSizes& mesh, const RankOrder& order, const Dataset& data,
                        const std::shared_ptr<const LayerFactory>& factory = nullptr);

/// Returns the role of every rank of the plan, for Run: who holds which layers, and that the rank of the last stage
/// sums losses and correct predictions.
RankRole role_of(const Plan& plan);

// The parts of a plan, for a chapter that places its stages on ranks in another way.
/// Returns the layers per stage, according to --split or --balance. The model may be one without memory for its
/// parameters. The schedule must be lowered and legal where ranks have several stages; otherwise only its placement
/// matters.
Split split_of(const PipelineSettings& pipeline, const Sequential& model, const Schedule& schedule,
               const std::vector<LayerProfile>& profile);
/// Returns how many receives a rank may have posted at once (see LowerOptions), according to --receives.
int receives_of(const PipelineSettings& pipeline);
/// Returns `computations` with the messages that they need. Throws UsageError if they then wait for each other.
Schedule lower_for(const PipelineSettings& pipeline, const Schedule& computations);

/// Returns the size in bytes of a message between each two consecutive stages, for `microbatch` images: [stages - 1].
std::vector<double> message_bytes(const Plan& plan, std::int64_t microbatch);
/// Returns the sizes of a step's micro-batches, relative to the plan's largest (see Costs::sizes).
std::vector<double> relative_sizes(const Plan& plan, const std::vector<std::int64_t>& microbatches);
/// Sets the costs of messages of `microbatch` images, and the sizes of the micro-batches of a step.
void set_messages(const Plan& plan, std::int64_t microbatch, Costs& costs);
/// Returns what the plan's stages cost according to its profile, with messages of `microbatch` images.
Costs costs_of(const Plan& plan, std::int64_t microbatch);
/// Returns the bytes of each stage's gradients.
std::vector<double> gradient_bytes(const Plan& plan);
/// Returns the slowest of the links that decide how long collectives take among the ranks of `mesh` that hold `stage`,
/// in the groups of `direction`.
Link link_of_stage(const Plan& plan, int stage, MeshDirection direction, const MeshSizes& mesh, const RankOrder& order);
/// Returns the seconds in which a rank exchanges tied weights in each of its updates.
double tied_seconds(const Plan& plan, int rank);
/// Returns the seconds of the exchanges within an action that the schedule lists, for a micro-batch of `images`, if the
/// plan has them.
double exchange_seconds(const Plan& plan, const Action& action, std::int64_t images);
/// Adds the seconds of the exchanges, the reductions, tied weights and the norm that the plan has to the costs.
void add_collectives(const Plan& plan, Costs& costs);

}  // namespace stagecoach
