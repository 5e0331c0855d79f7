#pragma once
/// @file
/// How a model is spread over ranks: decided once, before they start.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chapters/common/micro_batch_loader.h"
#include "chapters/common/settings.h"
#include "datasets/dataset.h"
#include "nn/sequential.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/gather.h"
#include "parallel/pipeline/layer_profile.h"
#include "parallel/pipeline/split.h"
#include "parallel/schedule/schedule.h"

namespace stagecoach {

struct Plan {
  World world;
  Schedule schedule;                  ///< of a step with all its micro-batches; lowered and legal
  Split split;                        ///< layers per stage
  std::vector<Shape> shapes;          ///< what enters each stage, for one image: [1, …]
  LayerRanks layers;                  ///< which rank holds which layer
  std::vector<LayerProfile> profile;  ///< of each layer, if it was measured
  std::vector<std::string> notes;     ///< what there is to say about the schedule: sentences, without a full stop

  std::string stages_text() const { return stagecoach::stages_text(split, schedule); }
  int stages() const { return schedule.stage_count(); }
  int first_rank(int stage) const { return schedule.stage_to_rank[static_cast<std::size_t>(stage)]; }
  /// The rank of the last stage.
  int last_rank() const { return schedule.stage_to_rank.back(); }
};

/// Whether the chapter runs the loop that it writes out, in place of a table. That loop posts each receive at its use.
bool is_by_hand(const PipelineSettings& pipeline);

/// As the flags say: --ranks, --chunks, --group, --split, --balance. `schedule` is a name that make_schedule
/// knows, or a file. Throws UsageError where that cannot be, and says what can.
Plan make_plan(const Settings& settings, const Dataset& data, const std::string& schedule);

// The parts of make_plan, for a chapter that places its stages on ranks in another way.
/// The ranks that the flags describe. Prepares their devices too.
World open_world(const WorldSettings& settings);
/// What each layer of `model` costs for the largest micro-batch that can be cut out of `data`, on the ranks' devices.
/// Here and below the model needs no memory.
std::vector<LayerProfile> measure_layers(const TrainingSettings& training, const World& world, const Dataset& data,
                                         Sequential& model);
/// Layers per stage, by --split or --balance; `replicas` are those of each stage, one each if empty.
Split split_of(const PipelineSettings& pipeline, const Sequential& model, int stages,
               const std::vector<LayerProfile>& profile, const std::vector<int>& replicas = {});
/// How many receives a rank may have posted (see LowerOptions): what --receives says.
int receives_of(const PipelineSettings& pipeline);
/// `computations` with the messages that they need.
Schedule lower_for(const PipelineSettings& pipeline, const Schedule& computations);
/// Fills in what follows from the plan's split and schedule: its shapes and layers.
void place_layers(Plan& plan, const TrainingSettings& training, const Sequential& model);

/// A message's size in bytes between each two stages, for a micro-batch of that many images: [stages - 1].
std::vector<double> message_bytes(const Plan& plan, std::int64_t microbatch);
/// What the plan's stages cost by its profile, with messages of `microbatch` images.
Costs costs_of(const Plan& plan, std::int64_t microbatch);

/// The stages of a rank, by number, with their initial weights on its device.
std::map<int, std::shared_ptr<Sequential>> open_stages(const TrainingSettings& training, const Plan& plan,
                                                       const Dataset& data, const Rank& rank);
/// Their layers as one module: what the rank's optimizer updates, and its part of a checkpoint.
std::shared_ptr<Sequential> joined(const std::map<int, std::shared_ptr<Sequential>>& stages);

/// The rank's loader: with images where it holds the first stage, with labels where it holds the first or the last.
enum class LoaderFor { training, testing };
MicroBatchLoader micro_batch_loader(const Settings& settings, const Plan& plan, const Dataset& data, const Rank& rank,
                                    LoaderFor purpose, const Shard& shard = {});

}  // namespace stagecoach
