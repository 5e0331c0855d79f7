// A mesh of one's own: replicas share each batch, each is a pipeline, and layers are cut over ranks. Compares meshes
// with one device. `own_mesh FOLDER` writes the runs there. `own_mesh FOLDER dp=2,pp=2,tp=2` only trains, for 20
// epochs, and with the argument `resume` it continues that run, perhaps with other stages.
#include <memory>
#include <string>

#include "datasets/loader.h"
#include "examples.h"
#include "nn/layers.h"
#include "nn/weights.h"
#include "parallel/tensor_parallel/sliced_layers.h"
#include "parallel/training/run.h"

using namespace stagecoach;

constexpr int kBatch = 22, kEpochs = 2;
const Dataset kData{random_numbers({20 * kBatch + 7, 16}, "x"), random_numbers({20 * kBatch + 7, 16}, "target")};

/// `layers` makes whole layers, or slices of them.
std::shared_ptr<Sequential> make_model(const LayerFactory& layers) {
  auto model = std::make_shared<Sequential>();
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    model->add("up" + n, layers.linear(16, 32, Cut::outputs)).add("gelu" + n, std::make_shared<GELU>());
    model->add("down" + n, layers.linear(32, 16, Cut::inputs));
    model->add("drop" + n, std::make_shared<Dropout>(0.1, 1, "drop" + n));
  }
  return model;
}

Weights train(const RunOptions& options, const MeshSizes& sizes) {
  launch({.ranks = sizes.ranks()}, [&](Rank& rank) {
    MeshPipe pipe(rank.comm, sizes, make_model, {.chunks = kChunks, .loss = kSquares, .optimizer = adam()});
    Run run(options, rank.comm, pipe.role());
    pipe.place({kBatch, 16});
    run.set_up_checkpoints({kData, kData}, pipe.layers(), pipe.optimizer());
    Loader loader(kData, {.batch_size = kBatch});
    for (Epoch& epoch : run.epochs()) {
      for (const Batch& batch : epoch.training_batches(loader)) {
        epoch.train_sums().add_loss(pipe.train_step(batch.inputs, batch.targets));
      }
    }
  });
  const auto model = make_model(LayerFactory());
  model->materialize(1);
  load_weights(options.out + "/weights.safetensors", *model);
  return weights_in(*model);
}

Weights train_by_hand(const LayerFactory& layers) {
  const auto model = make_model(layers);
  model->materialize(1);
  Adam optimizer(model->named_parameters());
  Loader loader(kData, {.batch_size = kBatch});
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    loader.start_epoch(epoch);
    while (const auto batch = loader.next()) {
      backward_by_hand(*model, batch->inputs, batch->targets, kSquares, {.step = optimizer.steps_done()});
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return weights_in(*model);
}

int main(int argc, char** argv) {
  if (argc > 2) {
    train(run_options(argc, argv, kBatch), mesh_from_text(argv[2]));
    return 0;
  }
  const RunOptions run{
      .out = argc > 1 ? argv[1] : "runs/own_mesh", .epochs = kEpochs, .batch_size = kBatch, .labels = 0};
  print_comparison({train_by_hand(LayerFactory()), train(run, {}), train(run, {.pipeline = 4})});
  // One device computes cut layers slice by slice.
  print_comparison({train_by_hand(SlicedLayers(2)), train(run, {.pipeline = 2, .tensor = 2})});
  // Two replicas add their sums of gradients, which rounds differently; but not with more stages.
  print_comparison({train(run, {.data = 2}), train(run, {.data = 2, .pipeline = 2})});
  return 0;
}
