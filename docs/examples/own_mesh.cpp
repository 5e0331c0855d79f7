// A mesh of one's own, data parallel and pipeline, from the parts below Pipe: each rank has a stage of one replica.
// Compares 1 x 4 ranks (replicas x stages) with one device, and 2 x 2 with 2 x 1.
#include <map>
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"
#include "parallel/data_parallel/average_gradients.h"
#include "parallel/launch/mesh.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/schedule/lower.h"
#include "parallel/schedule/schedule_kinds.h"

using namespace stagecoach;

constexpr int kSteps = 10, kBatch = 22;

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 4; ++i) {
    model->add("fc" + std::to_string(i), std::make_shared<Linear>(16, 16));
    model->add("drop" + std::to_string(i), std::make_shared<Dropout>(0.1, 1, "drop" + std::to_string(i)));
  }
  return model;
}

Weights train(const Tensor& x, const Tensor& target, const MeshSizes& sizes) {
  const auto whole = make_model();  // has the layers of replica 0
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    Mesh mesh(rank.comm, sizes);
    const MeshPosition at = position_of(rank.index, sizes);
    const auto model = at.data == 0 ? whole : make_model();
    const Split split = split_by_layers(model->size(), sizes.pipeline);
    const auto layers = stages_of(*model, split)[at.pipeline];
    layers->materialize(1, rank.device);
    Adam optimizer(layers->named_parameters());
    const Schedule schedule = with_reductions(lower(make_schedule("1f1b", sizes.pipeline, kChunks)));
    std::map<int, Stage> stages;
    stages.emplace(at.pipeline, Stage(layers, Stage::Recompute::no, kSquares));
    Pipeline pipeline(std::move(stages), shapes_entering(*model, split, {1, 16}), schedule, mesh.pipeline());
    const Share share = share_of(kBatch, at.data, sizes.data);  // of each batch
    const auto inputs = micro_batches(x.narrow(share.first, share.count).to(rank.device), kChunks);
    const auto targets = micro_batches(target.narrow(share.first, share.count).to(rank.device), kChunks);
    const auto reduce = [&](const Action&) { average_gradients(layers->named_parameters(), 1, mesh.data()); };
    for (int step = 0; step < kSteps; ++step) {
      pipeline.run(schedule,
                   {.input = [&](int i) { return inputs[i]; },
                    .labels = [&](int i) { return targets[i]; },
                    .samples = micro_batch_sizes(share.count, kChunks),
                    .of = kBatch,
                    .position = BatchPosition{.step = step, .first = share.first}},
                   {.reduce = reduce});
      pipeline.update(optimizer);
    }
  });
  return weights_in(*whole);
}

Weights train_by_hand(const Tensor& x, const Tensor& target) {
  const auto model = make_model();
  model->materialize(1);
  Adam optimizer(model->named_parameters());
  for (int step = 0; step < kSteps; ++step) {
    backward_by_hand(*model, x, target, kSquares, {.step = step});
    optimizer.step();
    optimizer.zero_grad();
  }
  return weights_in(*model);
}

int main() {
  const Tensor x = random_numbers({kBatch, 16}, "x");
  const Tensor target = random_numbers({kBatch, 16}, "target");
  print_comparison({train_by_hand(x, target), train(x, target, {}), train(x, target, {.pipeline = 4})});
  // Two replicas add their sums of gradients, which rounds differently; but not with more stages.
  print_comparison({train(x, target, {.data = 2}), train(x, target, {.data = 2, .pipeline = 2})});
  return 0;
}
