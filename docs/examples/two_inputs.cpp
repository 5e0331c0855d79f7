// A model with two inputs, of different types: tokens enter the first layer, and a later layer, on whichever rank,
// finds the features by name. Both come from loaders. Trains on one device by hand, on one rank and on four.
#include <memory>

#include "datasets/loader.h"
#include "examples.h"
#include "nn/layers.h"
#include "parallel/training/run.h"

using namespace stagecoach;

const LoaderSettings kLoader{.batch_size = 14};
const RunOptions kOptions{.epochs = 3, .batch_size = 14};

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

struct Data {  // two data sets with the same samples in the same order
  Dataset tokens{random_tokens({101, 6}, 20, "tokens"), random_tokens({101}, 5, "labels")};
  Dataset features{random_numbers({101, 4}, "features"), tokens.targets};
};

Weights train(const Data& data, int ranks) {
  const auto model = make_model();
  Pipe pipe(model, {.chunks = kChunks, .ranks = ranks, .optimizer = sgd({.learning_rate = 0.05})});
  Run run(kOptions, pipe.devices());
  pipe.place({Tensor::zeros({14, 6}, DType::int32), {{"features", Tensor::zeros({14, 4})}}});  // only shapes and types
  run.set_up_checkpoints({data.tokens, data.tokens}, *model, pipe.optimizer());
  Loader tokens(data.tokens, kLoader);
  Loader features(data.features, kLoader);  // the same seed, so the same samples in the same order
  for (Epoch& epoch : run.epochs()) {
    features.start_epoch(epoch.number(), epoch.steps_done());
    for (const Batch& batch : epoch.training_batches(tokens)) {
      pipe.train_step({batch.inputs, {{"features", features.next()->inputs}}}, batch.targets);
    }
  }
  return weights_in(*model);
}

Weights train_by_hand(const Data& data) {
  const auto model = make_model();
  model->materialize(1);
  Sgd optimizer(model->named_parameters(), {.learning_rate = 0.05});
  Loader tokens(data.tokens, kLoader);
  Loader features(data.features, kLoader);
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

int main() {
  const Data data;
  print_comparison({train_by_hand(data), train(data, 1), train(data, 4)});
  return 0;
}
