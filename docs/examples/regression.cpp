// A block of one's own, a regression loss, and a run with checkpoints: two epochs on four ranks, then two more on two
// ranks, end with the weights of four epochs on one rank. `regression FOLDER` writes the checkpoints there.
// `regression FOLDER RANKS` only trains, for 20 epochs, and `regression FOLDER RANKS resume` continues that run.
#include <memory>
#include <string>

#include "datasets/loader.h"
#include "examples.h"
#include "nn/layers.h"
#include "parallel/training/run.h"

using namespace stagecoach;

/// x + down(gelu(up(x))) + shift: a layer with layers and a parameter of its own.
class ResidualBlock final : public Module {
 public:
  ResidualBlock(std::int64_t width, std::int64_t hidden)
      : up_(std::make_shared<Linear>(width, hidden)), down_(std::make_shared<Linear>(hidden, width)) {
    add_child("up", up_);
    add_child("down", down_);
    add_parameter("shift", {width}, Init::constant(0));
  }
  Tensor forward(const Tensor& x) override {
    return add_broadcast(add(x, down_->forward(gelu(up_->forward(x)))), own("shift"));
  }
  Shape output_shape(const Shape& input) const override { return down_->output_shape(up_->output_shape(input)); }

 private:
  std::shared_ptr<Linear> up_, down_;
};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("in", std::make_shared<Linear>(8, 32));
  for (int i = 0; i < 6; ++i) {
    model->add("block" + std::to_string(i), std::make_shared<ResidualBlock>(32, 64));
  }
  model->add("out", std::make_shared<Linear>(32, 3));
  return model;
}

Weights train(const RunOptions& options, int ranks) {
  const auto model = make_model();
  Pipe pipe(model, {.chunks = kChunks, .ranks = ranks, .loss = kSquares, .optimizer = adamw({.learning_rate = 0.001})});
  Run run(options, pipe.role());
  const TrainTest data{{random_numbers({1003, 8}, "x"), random_numbers({1003, 3}, "y")},  // the last batch is smaller
                       {random_numbers({16, 8}, "test x"), random_numbers({16, 3}, "test y")}};
  pipe.place({options.batch_size, 8});
  pipe.optimizer().clip_norm(1);
  run.set_up_checkpoints(data, *model, pipe.optimizer());
  Loader loader(data.train, {.batch_size = options.batch_size});
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(loader)) {
      const double loss = pipe.train_step(batch.inputs, batch.targets);
      epoch.train_sums().add_loss(loss * static_cast<double>(batch.global_size));
    }
  }
  return weights_in(*model);
}

int main(int argc, char** argv) {
  if (argc > 2) {
    train(run_options(argc, argv, 16), std::stoi(argv[2]));
    return 0;
  }
  RunOptions options{.epochs = 4, .batch_size = 16, .labels = 0};  // no labels, and so no accuracy
  const Weights one_rank = train(options, 1), four_ranks = train(options, 4);
  options.out = argc > 1 ? argv[1] : "runs/regression";
  options.epochs = 2;
  train(options, 4);
  options.resume = options.out;
  options.epochs = 4;
  print_comparison({one_rank, four_ranks, train(options, 2)});
  return 0;
}
