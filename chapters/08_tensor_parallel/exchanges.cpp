#include "chapters/08_tensor_parallel/exchanges.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "chapters/common/micro_batches.h"
#include "chapters/common/open.h"
#include "chapters/common/plan.h"
#include "parallel/tensor_parallel/tensor_parallel_layers.h"

namespace stagecoach {
namespace {

std::vector<std::vector<int>> tensor_groups(const Settings& settings) {
  return mesh_groups(MeshDirection::tensor, *settings.data_parallel.mesh, *settings.data_parallel.rank_order);
}

/// Returns the seconds of all exchanges of a micro-batch, in all stages.
double seconds_of(const Exchanges& exchanges, const Link& link, int ranks) {
  double seconds = 0;
  for (const std::vector<Exchange>& of_layer : exchanges) {
    for (const Exchange& exchange : of_layer) {
      seconds += (exchange.forward + exchange.backward) * ring_seconds(exchange, link, ranks);
    }
  }
  return seconds;
}

}  // namespace

Exchanges exchanges_of(const Settings& settings, const Dataset& data) {
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const auto noted = std::make_shared<std::vector<Exchange>>();
  const auto model = make_model_of(settings.training, data,
                                   std::make_shared<TensorParallelLayers>(mesh.tensor, sequence_of(settings.training),
                                                                          classes_of(settings.training), noted));
  const TrainingSettings of_pipeline = settings_of_pipeline(settings, mesh).training;
  const std::int64_t images = micro_batch_sizes(of_pipeline.batch_size, of_pipeline.microbatches)[0];
  Shape shape{images, 3, of_pipeline.image_size, of_pipeline.image_size};
  Exchanges all;
  for (int i = 0; i < model->size(); ++i) {
    noted->clear();
    shape = model->layer(i)->output_shape(shape);
    all.push_back(*noted);
  }
  // The images need no gradient.
  if (!all.front().empty()) {
    all.front().front().backward = 0;
  }
  return all;
}

const Link& tensor_link(const Settings& settings) { return settings.world.link->among_any(tensor_groups(settings)); }

std::optional<std::string> warning_of_slow_exchanges(const Settings& settings, const Dataset& data) {
  const Network& network = *settings.world.link;
  const auto groups = tensor_groups(settings);
  const Link& within = network.between(0, 0);
  const auto slow = std::find_if(groups.begin(), groups.end(),
                                 [&](const std::vector<int>& group) { return network.among(group) != within; });
  if (slow == groups.end()) {
    return std::nullopt;
  }
  const MeshSizes& mesh = *settings.data_parallel.mesh;
  const Exchanges exchanges = exchanges_of(settings, data);
  const auto microbatches = static_cast<double>(settings_of_pipeline(settings, mesh).training.microbatches);
  const auto milliseconds = [&](const Link& link) {
    return 1e3 * microbatches * seconds_of(exchanges, link, mesh.tensor);
  };
  return fmt::format(
      "the tensor-parallel ranks [{}] are not on one node: their exchanges in a step take {:.3g} ms, and within a node "
      "they would take {:.3g} ms; put tp first in --rank-order, and choose tp so that it divides the ranks per node",
      fmt::join(*slow, ", "), milliseconds(network.among(*slow)), milliseconds(within));
}

}  // namespace stagecoach
