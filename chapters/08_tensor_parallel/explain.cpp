#include "chapters/08_tensor_parallel/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <tuple>
#include <vector>

#include "chapters/08_tensor_parallel/exchanges.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "chapters/common/units.h"
#include "parallel/launch/mesh.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {
namespace {

/// Prints the ranks that exchange something in each direction.
void print_groups(const Settings& settings) {
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const auto& order = settings.data_parallel.rank_order;
  fmt::print("{} ranks in the order {}\n", mesh.ranks(), order.text());
  for (const auto& [name, sends, direction] :
       {std::tuple("tensor", "activations, in each layer that is cut", MeshDirection::tensor),
        {"pipeline", "activations, between stages", MeshDirection::pipeline},
        {"data", "gradients, once per step", MeshDirection::data}}) {
    std::vector<std::string> groups;
    for (const std::vector<int>& group : mesh_groups(direction, mesh, *order)) {
      groups.push_back(fmt::format("[{}]", fmt::join(group, ", ")));
    }
    fmt::print("  {:<9} {}\n            {}\n", name, sends, fmt::join(groups, " "));
  }
}

/// Prints what a rank holds of each layer, and what it sends to its tensor group for a micro-batch.
void print_layers(const Settings& settings, const Dataset& data, const Sequential& cut, const Exchanges& exchanges) {
  const int ranks = settings.data_parallel.mesh->tensor;
  const double ring = static_cast<double>(ranks - 1) / ranks;  // bytes sent per byte of a tensor, in a ring
  const auto whole = make_model_of(settings.training, data);
  fmt::print("\nLayers, cut over {} tensor-parallel ranks; sent per rank for a micro-batch\n", ranks);
  const auto row = [](const auto&... cells) { fmt::print("  {:<16} {:>10} {:>10} {:>14} {:>14}\n", cells...); };
  row("layer", "weights", "per rank", "forward, KiB", "backward, KiB");
  std::int64_t weights = 0;
  std::int64_t held = 0;
  double sent[2] = {};
  for (int i = 0; i < whole->size(); ++i) {
    double forward = 0;
    double backward = 0;
    for (const Exchange& exchange : exchanges[static_cast<std::size_t>(i)]) {
      const double bytes = ring * static_cast<double>(exchange.numel) * sizeof(float);
      forward += exchange.forward * bytes;
      backward += exchange.backward * bytes;
    }
    const std::int64_t of_layer = parameter_count(*whole->layer(i));
    const std::int64_t of_rank = parameter_count(*cut.layer(i));
    weights += of_layer;
    held += of_rank;
    sent[0] += forward;
    sent[1] += backward;
    if (of_layer > 0 || forward + backward > 0) {
      row(whole->name(i), of_layer, of_rank, fmt::format("{:.1f}", forward / kKiB),
          fmt::format("{:.1f}", backward / kKiB));
    }
  }
  row("all", weights, held, fmt::format("{:.1f}", sent[0] / kKiB), fmt::format("{:.1f}", sent[1] / kKiB));
  fmt::print("\n");
}

/// Adds the seconds of all exchanges over their links to the measured layers, and those of the gradients' reductions.
void add_seconds(Plan& plan, const Settings& settings, const Sequential& model, const Exchanges& exchanges) {
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const Link& link = tensor_link(settings);
  std::vector<double> bytes = parameter_costs(model);
  plan.reductions.assign(plan.split.size(), 0);
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < plan.split.size(); ++stage) {
    double gradients = 0;
    for (int i = 0; i < plan.split[stage]; ++i, ++layer) {
      for (const Exchange& exchange : exchanges[layer]) {
        const double seconds = ring_seconds(exchange, link, mesh.tensor);
        plan.profile[layer].forward += exchange.forward * seconds;
        plan.profile[layer].backward_input += exchange.backward * seconds;
      }
      gradients += bytes[layer] * sizeof(float);
    }
    plan.reductions[stage] = ring_all_reduce_seconds(plan.reduction_link, mesh.data, gradients);
  }
}

}  // namespace

void explain_mesh(const Settings& settings, const Dataset& data) {
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const Settings of_pipeline = settings_of_pipeline(settings, mesh);
  const auto layers = std::make_shared<TensorParallelLayers>(mesh.tensor, sequence_of(settings.training),
                                                             classes_of(settings.training));
  Plan plan = make_pipeline_plan(of_pipeline, mesh, *settings.data_parallel.rank_order, data, layers);
  const auto cut = make_model_of(settings.training, data, layers);
  const Exchanges exchanges = exchanges_of(settings, data);
  if (!plan.profile.empty()) {
    add_seconds(plan, settings, *cut, exchanges);
  }
  print_groups(settings);
  print_layers(settings, data, *cut, exchanges);
  if (const auto warning = warning_of_slow_exchanges(settings, data)) {
    fmt::print("Warning: {}.\n\n", *warning);
  }
  explain(of_pipeline, plan);
}

}  // namespace stagecoach
