// Trains replicas of a model of one's own, which share each batch, with checkpoints. `train_replicas FOLDER RANKS`
// starts a run, and `train_replicas FOLDER RANKS resume` continues it, after Ctrl-C or after a crash.
#include <string>

#include "datasets/generated.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"
#include "nn/layers.h"
#include "parallel/parallel.h"
#include "parallel/training/exit_code.h"
#include "parallel/training/replica_role.h"
#include "parallel/training/run.h"

using namespace stagecoach;

/// What one rank does.
void train(const RunOptions& options, const TrainTest& data, Rank& rank) {
  Sequential model;
  model.add("flatten", std::make_shared<Flatten>()).add("fc1", std::make_shared<Linear>(3 * 32 * 32, 64));
  model.add("relu", std::make_shared<ReLU>()).add("dropout", std::make_shared<Dropout>(0.1, 1, "dropout"));
  model.add("fc2", std::make_shared<Linear>(64, 10));
  Run run(options, rank.comm, replica_role(model));
  model.materialize(1, rank.device);
  DistributedDataParallel replicas(model, rank.comm);
  Adam optimizer(model.named_parameters(), {.learning_rate = 0.001});
  run.set_up_checkpoints(data, model, optimizer);  // resumed: loads both; after each epoch saves both

  Loader train_loader(data.train, {.batch_size = options.batch_size, .shard = rank.index, .shards = rank.world});
  Loader test_loader(data.test,
                     {.batch_size = options.batch_size, .shuffle = false, .shard = rank.index, .shards = rank.world});
  for (Epoch& epoch : run.epochs()) {
    model.train(true);
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      const std::int64_t first = share_of(batch.global_size, rank.index, rank.world).first;
      const BatchScope scope(BatchPosition{optimizer.steps_done(), first});  // for dropout: which samples these are
      const Tensor labels = batch.targets.to(rank.device);
      const Tensor logits = replicas.forward(model_input(batch.inputs).to(rank.device));
      const Tensor loss = cross_entropy(logits, labels, Reduction::sum);
      replicas.backward(loss, batch.global_size);  // of the mean over the samples of all ranks
      optimizer.step();
      optimizer.zero_grad();
      epoch.train_sums().add(loss, logits, labels);
    }
    const NoGrad no_grad;
    model.train(false);
    for (const Batch& batch : epoch.test_batches(test_loader)) {
      const Tensor logits = model.forward(model_input(batch.inputs).to(rank.device));
      count_correct(logits, batch.targets.to(rank.device), epoch.test_sums().correct);
    }
  }
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "runs/own";
  const RunOptions options{.out = folder,
                           .resume = argc > 3 ? folder : "",
                           .epochs = 20,
                           .batch_size = 64,
                           .rate = {.shape = RateShape::cosine, .warm_up = 100}};
  return with_exit_code("train_replicas", [&] {
    const TrainTest data = generate({.train = 4000, .test = 500});
    launch({.ranks = argc > 2 ? std::stoi(argv[2]) : 2}, [&](Rank& rank) { train(options, data, rank); });
    return 0;
  });
}
