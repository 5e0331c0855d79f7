// Trains a model of one's own as a pipeline, with checkpoints. `train_a_pipeline FOLDER RANKS` starts a run, and
// `train_a_pipeline FOLDER RANKS resume` continues it, after Ctrl-C or after a crash, with as many ranks as you like.
#include <memory>
#include <string>

#include "datasets/generated.h"
#include "datasets/loader.h"
#include "nn/layers.h"
#include "parallel/parallel.h"
#include "parallel/training/exit_code.h"
#include "parallel/training/run.h"

using namespace stagecoach;

void train(const RunOptions& options, int ranks) {
  auto model = std::make_shared<Sequential>();
  model->add("flatten", std::make_shared<Flatten>()).add("fc1", std::make_shared<Linear>(3 * 32 * 32, 64));
  model->add("relu", std::make_shared<ReLU>()).add("dropout", std::make_shared<Dropout>(0.1, 1, "dropout"));
  model->add("fc2", std::make_shared<Linear>(64, 64)).add("gelu", std::make_shared<GELU>());
  model->add("fc3", std::make_shared<Linear>(64, 10));
  Pipe pipe(model, {.chunks = 4, .ranks = ranks, .optimizer = adamw({.learning_rate = 0.001})});

  Run run(options, pipe.role());  // prints, measures and saves; on Ctrl-C finishes the step, saves and exits
  const TrainTest data = generate({.train = 4000, .test = 500});
  pipe.place({options.batch_size, 3, 32, 32});  // allocates the layers on their ranks
  pipe.optimizer().clip_norm(1);
  run.set_up_checkpoints(data, *model, pipe.optimizer());  // resumed: loads both; after each epoch saves both
  Loader train_loader(data.train, {.batch_size = options.batch_size});
  Loader test_loader(data.test, {.batch_size = options.batch_size, .shuffle = false});
  const Device last = pipe.devices().back();
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(train_loader)) {
      Tensor logits;
      const double loss = pipe.backward(model_input(batch.inputs), batch.targets, &logits);
      pipe.step();
      pipe.zero_grad();
      const double loss_sum = loss * static_cast<double>(batch.global_size);
      epoch.train_sums().add(Tensor::full({}, loss_sum, DType::float32, last), logits, batch.targets.to(last));
    }
    for (const Batch& batch : epoch.test_batches(test_loader)) {
      count_correct(pipe.forward(model_input(batch.inputs)).to(last), batch.targets.to(last),
                    epoch.test_sums().correct);
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
  return with_exit_code("train_a_pipeline", [&] {
    train(options, argc > 2 ? std::stoi(argv[2]) : 2);
    return 0;
  });
}
