#include "chapters/08_tensor_parallel/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "chapters/08_tensor_parallel/mesh_plan.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "chapters/common/prediction.h"
#include "core/base/units.h"
#include "parallel/launch/mesh.h"

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
    const std::int64_t whole_parameters = parameter_count(*whole->layer(i));
    const std::int64_t rank_parameters = parameter_count(*cut.layer(i));
    weights += whole_parameters;
    held += rank_parameters;
    sent[0] += forward;
    sent[1] += backward;
    if (whole_parameters > 0 || forward + backward > 0) {
      row(whole->name(i), whole_parameters, rank_parameters, fmt::format("{:.1f}", forward / kKiB),
          fmt::format("{:.1f}", backward / kKiB));
    }
  }
  row("all", weights, held, fmt::format("{:.1f}", sent[0] / kKiB), fmt::format("{:.1f}", sent[1] / kKiB));
  fmt::print("\n");
}

/// Returns the bytes that a rank sends to the next one in a ring of its tensor or data-parallel group, in a step: the
/// most of all stages and both groups.
double collective_bytes(const MeshSizes& mesh, const Plan& plan, const Exchanges& exchanges) {
  const double tensor_ring = static_cast<double>(mesh.tensor - 1) / mesh.tensor;
  const double data_ring = 2.0 * (mesh.data - 1) / mesh.data;
  const std::vector<double> gradients = gradient_bytes(plan);
  double most = 0;
  auto layer = exchanges.begin();
  for (std::size_t s = 0; s < plan.split.size(); ++s) {
    double sent = 0;  // for a micro-batch
    for (const auto end = layer + plan.split[s]; layer != end; ++layer) {
      for (const Exchange& exchange : *layer) {
        sent +=
            tensor_ring * (exchange.forward + exchange.backward) * static_cast<double>(exchange.numel) * sizeof(float);
      }
    }
    most = std::max({most, plan.schedule.microbatches * sent, data_ring * gradients[s]});
  }
  return most;
}

}  // namespace

void explain_mesh(const Settings& settings, const Dataset& data) {
  const Plan plan = make_mesh_plan(settings, data);
  print_groups(settings);
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const Exchanges exchanges = exchanges_of(settings, data, plan.microbatch);
  print_layers(settings, data, *model_of_rank(settings, data), exchanges);
  explain(plan, collective_bytes(mesh, plan, exchanges));
}

}  // namespace stagecoach
