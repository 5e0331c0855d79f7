// A model with two inputs from loaders: tokens, and features that a later layer finds by name. Trains on one device by
// hand, on one rank and on four. `two_inputs FOLDER RANKS` only trains; with `resume` at the end it continues that run.
#include <memory>

#include "datasets/loader.h"
#include "examples.h"
#include "nn/layers.h"
#include "parallel/training/run.h"

using namespace stagecoach;

const LoaderSettings kLoader{.batch_size = 14};
const RunOptions kOptions{.epochs = 3, .batch_size = 14, .labels = 0};
const Dataset kTokens{random_tokens({1003, 6}, 20, "tokens"), random_tokens({1003}, 5, "labels")};
const Dataset kFeatures{random_numbers({1003, 4}, "features"), kTokens.targets};  // of the same samples, in their order

/// x + project(features), where features are [N, 4].
class AddFeatures final : public Module {
 public:
  AddFeatures() : project_(std::make_shared<Linear>(4, 16)) { add_child("project", project_); }
  Tensor forward(const Tensor& x) override { return add(x, project_->forward(NamedValues::get("features"))); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Linear> project_;
};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("embed", std::make_shared<Embedding>(20, 16)).add("mean", std::make_shared<TokenMean>());
  model->add("fc1", std::make_shared<Linear>(16, 16)).add("relu1", std::make_shared<ReLU>());
  model->add("features", std::make_shared<AddFeatures>()).add("gelu", std::make_shared<GELU>());
  model->add("fc2", std::make_shared<Linear>(16, 16)).add("fc3", std::make_shared<Linear>(16, 5));
  return model;
}

Weights train(const RunOptions& options, int ranks) {
  const auto model = make_model();
  Pipe pipe(model, {.chunks = kChunks, .ranks = ranks, .optimizer = sgd({.learning_rate = 0.05})});
  Run run(options, pipe.role());
  pipe.place({Tensor::zeros({14, 6}, DType::int32), {{"features", Tensor::zeros({14, 4})}}});  // only shapes and types
  run.set_up_checkpoints({kTokens, kTokens}, *model, pipe.optimizer());
  Loader tokens(kTokens, kLoader);
  Loader features(kFeatures, kLoader);  // the same seed, so the same samples in the same order
  for (Epoch& epoch : run.epochs()) {
    features.start_epoch(epoch.number(), epoch.steps_done());
    for (const Batch& batch : epoch.training_batches(tokens)) {
      const double loss = pipe.train_step({batch.inputs, {{"features", features.next()->inputs}}}, batch.targets);
      epoch.train_sums().add_loss(loss * static_cast<double>(batch.global_size));
    }
  }
  return weights_in(*model);
}

Weights train_by_hand() {
  const auto model = make_model();
  model->materialize(1);
  Sgd optimizer(model->named_parameters(), {.learning_rate = 0.05});
  Loader tokens(kTokens, kLoader), features(kFeatures, kLoader);
  for (int epoch = 1; epoch <= kOptions.epochs; ++epoch) {
    tokens.start_epoch(epoch);
    features.start_epoch(epoch);
    while (const auto batch = tokens.next()) {
      backward_by_hand(*model, {batch->inputs, {{"features", features.next()->inputs}}}, batch->targets, {});
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return weights_in(*model);
}

int main(int argc, char** argv) {
  if (argc > 2) {
    train(run_options(argc, argv, 14), std::stoi(argv[2]));
  } else {
    print_comparison({train_by_hand(), train(kOptions, 1), train(kOptions, 4)});
  }
  return 0;
}
