// Values that skip layers, and stages of a pipeline: two are kept on the way down and used on the way up, as in a
// U-Net; the loss reads a third one, and an input. Trains on one device by hand, and on four ranks with several
// schedules.
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"

using namespace stagecoach;

constexpr int kSteps = 20;

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
  model->add("keep1", std::make_shared<Stash>("wide"));
  model->add("down2", std::make_shared<Linear>(32, 16)).add("relu2", std::make_shared<ReLU>());
  model->add("keep2", std::make_shared<Stash>("narrow"));
  model->add("middle", std::make_shared<Linear>(16, 16)).add("relu3", std::make_shared<ReLU>());
  model->add("keep3", std::make_shared<Stash>("hidden"));  // for the loss
  model->add("add", std::make_shared<AddStashed>("narrow"));
  model->add("up", std::make_shared<Linear>(16, 32)).add("relu4", std::make_shared<ReLU>());
  model->add("cat", std::make_shared<CatStashed>("wide", 32)).add("out", std::make_shared<Linear>(64, 4));
  return model;
}

// The model corrects a forecast, an input that only the loss reads. A second term is about a hidden layer.
Tensor corrected_loss(const Tensor& y, const Tensor& target) {
  const Tensor hidden = narrow_columns(NamedValues::get("hidden"), 0, 4);
  return add(mean_squared_error(add(y, NamedValues::get("forecast")), target), mean_squared_error(hidden, target));
}
const LossFunction kCorrectedLoss(corrected_loss, Reduction::mean);

Weights train(const PipeInput& x, const Tensor& target, int ranks, const char* schedule) {
  const auto model = make_model();
  Pipe pipe(model,
            {.chunks = kChunks, .schedule = schedule, .ranks = ranks, .loss = kCorrectedLoss, .optimizer = adam()});
  for (int step = 0; step < kSteps; ++step) {
    pipe.train_step(x, target);
  }
  return weights_in(*model);
}

Weights train_by_hand(const PipeInput& x, const Tensor& target) {
  const auto model = make_model();
  model->materialize(1);
  Adam optimizer(model->named_parameters());
  for (int step = 0; step < kSteps; ++step) {
    backward_by_hand(*model, x, target, kCorrectedLoss);
    optimizer.step();
    optimizer.zero_grad();
  }
  return weights_in(*model);
}

int main() {
  const PipeInput x(random_numbers({22, 16}, "x"), {{"forecast", random_numbers({22, 4}, "forecast")}});
  const Tensor target = random_numbers({22, 4}, "target");
  print_comparison({train_by_hand(x, target), train(x, target, 1, "1f1b"), train(x, target, 4, "1f1b"),
                    train(x, target, 4, "gpipe"), train(x, target, 2, "interleaved"), train(x, target, 2, "zbv")});
  return 0;
}
