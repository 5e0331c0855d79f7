// Values that skip layers, and stages of a pipeline: two are kept on the way down and used on the way up, as in a
// U-Net; the loss reads a third one, and an input. Trains on one device by hand, and on four ranks with several
// schedules. `skip FOLDER RANKS` only trains; with `resume` at the end it continues that run.
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"

using namespace stagecoach;

constexpr int kEpochs = 3, kBatch = 22;
const Dataset kData{random_numbers({139, 20}, "x"), random_numbers({139, 4}, "target")};

/// Appends the columns that a Stash has kept: [N, C] to [N, C + width].
class CatStashed final : public Unstash {
 public:
  CatStashed(std::string name, std::int64_t width) : Unstash(std::move(name)), width_(width) {}
  Tensor forward(const Tensor& x) override { return cat_columns({x, stashed()}); }
  Shape output_shape(const Shape& input) const override { return input.with(-1, input[-1] + width_); }

 private:
  std::int64_t width_;
};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("down1", std::make_shared<Linear>(16, 32)).add("relu1", std::make_shared<ReLU>());
  model->add("keep1", std::make_shared<Stash>("wide")).add("down2", std::make_shared<Linear>(32, 16));
  model->add("keep2", std::make_shared<Stash>("narrow")).add("middle", std::make_shared<Linear>(16, 16));
  model->add("relu2", std::make_shared<ReLU>()).add("keep3", std::make_shared<Stash>("hidden"));  // for the loss
  model->add("add", std::make_shared<AddStashed>("narrow"));
  model->add("up", std::make_shared<Linear>(16, 32)).add("relu3", std::make_shared<ReLU>());
  model->add("cat", std::make_shared<CatStashed>("wide", 32)).add("out", std::make_shared<Linear>(64, 4));
  return model;
}

// The model corrects a forecast, an input that only the loss reads. A second term is about a hidden layer.
Tensor corrected_loss(const Tensor& y, const Tensor& target) {
  const Tensor hidden = narrow_columns(NamedValues::get("hidden"), 0, 4);
  return add(mean_squared_error(add(y, NamedValues::get("forecast")), target), mean_squared_error(hidden, target));
}
const LossFunction kCorrectedLoss(corrected_loss, Reduction::mean);

/// Returns the features [N, 16] and the forecast [N, 4], which are side by side in a sample.
PipeInput input_of(const Tensor& x) { return {narrow_columns(x, 0, 16), {{"forecast", narrow_columns(x, 16, 4)}}}; }

Weights train(const RunOptions& options, int ranks, const char* schedule = "1f1b") {
  const auto model = make_model();
  Pipe pipe(model, {.schedule = schedule, .ranks = ranks, .loss = kCorrectedLoss, .optimizer = adam()});
  Run run(options, pipe.role());
  pipe.place(input_of(Tensor::zeros({kBatch, 20})));
  run.set_up_checkpoints({kData, kData}, *model, pipe.optimizer());
  train_epochs(run, kData, kBatch, [&](const Batch& b) { return pipe.train_step(input_of(b.inputs), b.targets); });
  return weights_in(*model);
}

Weights train_by_hand() {
  const auto model = make_model();
  model->materialize(1);
  Adam optimizer(model->named_parameters());
  train_epochs_by_hand(kEpochs, kData, kBatch, [&](const Batch& b) {
    backward_by_hand(*model, input_of(b.inputs), b.targets, kCorrectedLoss);
    optimizer.step();
    optimizer.zero_grad();
  });
  return weights_in(*model);
}

int main(int argc, char** argv) {
  const RunOptions run{.epochs = kEpochs, .batch_size = kBatch, .labels = 0};
  if (argc > 2) {
    train(run_options(argc, argv, kBatch), std::stoi(argv[2]));
  } else {
    print_comparison({train_by_hand(), train(run, 1), train(run, 4), train(run, 4, "gpipe"),
                      train(run, 2, "interleaved"), train(run, 2, "zbv")});
  }
  return 0;
}
