#include "chapters/08_tensor_parallel/mesh_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "chapters/common/open.h"
#include "datasets/shares.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {
namespace {

/// Returns what makes the layers of one rank of a tensor-parallel group; null: whole layers.
std::shared_ptr<const LayerFactory> layers_of_rank(const Settings& settings,
                                                   std::shared_ptr<std::vector<Exchange>> exchanges = nullptr) {
  const int ranks = settings.data_parallel.mesh->tensor;
  return ranks == 1 ? nullptr
                    : std::make_shared<TensorParallelLayers>(ranks, sequence_of(settings.training),
                                                             classes_of(settings.training), std::move(exchanges),
                                                             settings.data_parallel.overlap);
}

std::vector<std::vector<int>> tensor_groups(const Settings& settings) {
  return mesh_groups(MeshDirection::tensor, *settings.data_parallel.mesh, *settings.data_parallel.rank_order);
}

/// Returns the seconds of the backward's rings that --overlap hides. They are known on the modelled clock only: a
/// profile does not tell how long each kernel takes.
double hidden_seconds(const Settings& settings, const Exchange& exchange) {
  return settings.data_parallel.overlap && settings.world.clock == ClockKind::modelled && exchange.beside
             ? 1e-12 * static_cast<double>(settings.world.modelled_device->picoseconds(*exchange.beside))
             : 0;
}

/// Returns the seconds that `exchanges` add to each computation. Where the backward is split, nothing is beside them.
CollectiveSeconds seconds_of(const Settings& settings, const std::vector<Exchange>& exchanges, const Link& link) {
  CollectiveSeconds sum;
  for (const Exchange& exchange : exchanges) {
    const double ring = ring_seconds(exchange, link, settings.data_parallel.mesh->tensor);
    sum.forward += exchange.forward * ring;
    sum.backward += std::max(0.0, exchange.backward * ring - hidden_seconds(settings, exchange));
    (exchange.of_weights ? sum.backward_weight : sum.backward_input) += exchange.backward * ring;
  }
  return sum;
}

/// Returns the seconds of each stage's exchanges.
std::vector<CollectiveSeconds> seconds_of_stages(const Plan& plan, const Exchanges& exchanges) {
  const Settings& settings = plan.settings;
  std::vector<CollectiveSeconds> stages;
  std::size_t layer = 0;
  for (int stage = 0; stage < plan.stages(); ++stage) {
    const Link link = link_of_stage(plan, stage, MeshDirection::tensor, *settings.data_parallel.mesh,
                                    *settings.data_parallel.rank_order);
    CollectiveSeconds stage_seconds;
    for (int i = 0; i < plan.split[static_cast<std::size_t>(stage)]; ++i, ++layer) {
      const CollectiveSeconds layer_seconds = seconds_of(settings, exchanges[layer], link);
      stage_seconds.forward += layer_seconds.forward;
      stage_seconds.backward += layer_seconds.backward;
      stage_seconds.backward_input += layer_seconds.backward_input;
      stage_seconds.backward_weight += layer_seconds.backward_weight;
    }
    if (stage == 0) {  // its input needs no gradient: all but what is computed again waits for the second part
      stage_seconds.backward_input = settings.pipeline.recompute ? stage_seconds.forward : 0;
      stage_seconds.backward_weight = stage_seconds.backward - stage_seconds.backward_input;
    }
    stages.push_back(stage_seconds);
  }
  return stages;
}

/// Sets the seconds of each stage's exchanges, for every size that a micro-batch can have.
void set_exchanges(Plan& plan, const Dataset& data) {
  std::set<std::int64_t> sizes{plan.microbatch};
  for (const std::int64_t images : {plan.images, plan.last_images}) {
    const auto of_step = micro_batch_sizes(images, plan.schedule.microbatches);
    sizes.insert(of_step.begin(), of_step.end());
  }
  sizes.erase(0);
  for (const std::int64_t size : sizes) {
    plan.exchanges[size] = seconds_of_stages(plan, exchanges_of(plan.settings, data, size));
  }
}

/// Sets the seconds in which each rank joins its slices of gradients with those of its group, for the norm of them all.
void set_norm_exchange(Plan& plan) {
  const Settings& settings = plan.settings;
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  plan.norm_exchange.resize(plan.schedule.ranks.size());
  int number = 0;
  for (const auto& stage : stages_of(*plan.model, plan.split)) {
    const Link link = link_of_stage(plan, number, MeshDirection::tensor, mesh, *settings.data_parallel.rank_order);
    double& seconds = plan.norm_exchange[static_cast<std::size_t>(plan.first_rank(number++))];
    for (const auto& [name, slice] : stage->named_slices()) {
      const auto bytes = static_cast<double>(slice.shape().numel()) * sizeof(float);
      seconds += ring_all_gather_seconds(link, mesh.tensor, bytes);
    }
  }
}

/// Adds a note, with what it costs, if a tensor-parallel group has ranks on several nodes.
void note_slow_exchanges(Plan& plan, const Exchanges& exchanges) {
  const Settings& settings = plan.settings;
  const Network& network = *settings.world.link;
  const auto groups = tensor_groups(settings);
  const Link& within = network.within_node();
  const auto slow = std::find_if(groups.begin(), groups.end(),
                                 [&](const std::vector<int>& group) { return network.among(group, groups) != within; });
  if (slow == groups.end()) {
    return;
  }
  const auto milliseconds = [&](const Link& link) {
    double seconds = 0;
    for (const std::vector<Exchange>& layer_exchanges : exchanges) {
      const auto sum = seconds_of(settings, layer_exchanges, link);
      seconds += plan.schedule.microbatches * (sum.forward + sum.backward);
    }
    return 1e3 * seconds;
  };
  plan.notes.push_back(fmt::format(
      "the tensor-parallel ranks [{}] are not on one node: their exchanges in a step take {:.3g} ms, and within a node "
      "they would take {:.3g} ms; put tp first in --rank-order, and choose tp so that it divides the ranks per node",
      fmt::join(*slow, ", "), milliseconds(network.among(*slow, groups)), milliseconds(within)));
}

}  // namespace

std::shared_ptr<Sequential> model_of_rank(const Settings& settings, const Dataset& data,
                                          std::shared_ptr<std::vector<Exchange>> exchanges) {
  return make_model_of(settings.training, data, layers_of_rank(settings, std::move(exchanges)));
}

Exchanges exchanges_of(const Settings& settings, const Dataset& data, std::int64_t microbatch) {
  const auto noted = std::make_shared<std::vector<Exchange>>();
  const auto model = model_of_rank(settings, data, noted);
  Shape shape = input_shape(settings.training, microbatch);
  Exchanges all;
  for (int i = 0; i < model->size(); ++i) {
    noted->clear();
    shape = model->layer(i)->output_shape(shape);
    all.push_back(*noted);
  }
  // The images need no gradient. (Where ranks share the tokens, the first layer exchanges that of its output.)
  if (!all.front().empty() && sequence_of(settings.training) == SequenceParallel::no) {
    all.front().front().backward = 0;
  }
  if (settings.pipeline.recompute) {
    for (std::vector<Exchange>& layer_exchanges : all) {
      for (Exchange& exchange : layer_exchanges) {
        exchange.backward += exchange.forward;  // the backward runs the forward again
      }
    }
  }
  return all;
}

Plan make_mesh_plan(const Settings& settings, const Dataset& data) {
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  // The plan is made with layers of a rank that runs alone: stages may end between two layers of a pair, where each
  // rank has a slice.
  Plan plan = make_pipeline_plan(settings, mesh, *settings.data_parallel.rank_order, data, layers_of_rank(settings));
  set_exchanges(plan, data);
  if (settings.training.clip_norm > 0) {
    set_norm_exchange(plan);
  }
  note_slow_exchanges(plan, exchanges_of(settings, data, plan.microbatch));
  return plan;
}

}  // namespace stagecoach
