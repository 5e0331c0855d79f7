// Trains a model of one's own, with checkpoints. `train_your_own FOLDER` starts a run, and `train_your_own FOLDER
// resume` continues it, after Ctrl-C or after a crash.
#include <memory>
#include <string>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/generated.h"
#include "datasets/loader.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "parallel/training/exit_code.h"
#include "parallel/training/run.h"

using namespace stagecoach;

void train(const RunOptions& options) {
  Run run(options, Device{});  // prints, measures and saves; on Ctrl-C finishes the step, saves and exits
  const TrainTest data = generate({.train = 4000, .test = 500});
  Sequential model;
  model.add("flatten", std::make_shared<Flatten>()).add("fc1", std::make_shared<Linear>(3 * 32 * 32, 64));
  model.add("relu", std::make_shared<ReLU>()).add("fc2", std::make_shared<Linear>(64, 10));
  model.materialize(1);  // the seed of the initial weights
  Adam optimizer(model.named_parameters(), {.learning_rate = 0.001});
  run.set_up_checkpoints(data, model, optimizer);  // resumed: loads both; after each epoch saves both
  Loader train_loader(data.train, {.batch_size = options.batch_size});
  Loader test_loader(data.test, {.batch_size = options.batch_size, .shuffle = false});
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      const Tensor logits = model.forward(normalize(batch.inputs));
      const Tensor loss = cross_entropy(logits, batch.targets, Reduction::sum);
      backward(loss, Tensor::full({}, 1.0 / static_cast<double>(batch.global_size)));  // of the mean loss
      optimizer.step();
      optimizer.zero_grad();
      epoch.train_sums().add(loss, logits, batch.targets);
    }
    const NoGrad no_grad;
    for (const Batch& batch : epoch.test_batches(test_loader)) {
      count_correct(model.forward(normalize(batch.inputs)), batch.targets, epoch.test_sums().correct);
    }
  }
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "runs/own";
  const RunOptions options{.out = folder, .resume = argc > 2 ? folder : "", .epochs = 20, .batch_size = 64};
  return with_exit_code("train_your_own", [&] {
    train(options);
    return 0;
  });
}
