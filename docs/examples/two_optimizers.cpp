// Two models that train each other, as in a GAN: two pipes, each with its optimizer. A Run saves one model, so the
// checkpoint is written here. Compares trainings on one rank, on four, and on four of which a checkpoint in FOLDER is
// continued on two. `two_optimizers FOLDER RANKS` trains and saves each step; with `resume` at the end it continues.
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"
#include "nn/save_models.h"

using namespace stagecoach;

constexpr int kBatch = 14;
const Tensor kReal = Tensor::full({kBatch, 1}, 1);
const Tensor kFake = Tensor::zeros({kBatch, 1});

std::shared_ptr<Sequential> make_mlp(int inputs, int outputs) {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(inputs, 32)).add("relu1", std::make_shared<ReLU>());
  model->add("fc2", std::make_shared<Linear>(32, 32)).add("drop", std::make_shared<Dropout>(0.2, 1, "drop"));
  model->add("fc3", std::make_shared<Linear>(32, outputs));
  return model;
}

struct Gan {
  explicit Gan(int ranks)
      : generator(make_mlp(4, 2), {.chunks = kChunks, .ranks = ranks, .optimizer = adam()}),
        critic(make_mlp(2, 1), {.chunks = kChunks, .ranks = ranks, .loss = kSquares, .optimizer = adam()}) {
    generator.place({kBatch, 4});  // now there are weights and optimizers to load a checkpoint into
    critic.place({kBatch, 2});
  }
  /// Trains until `steps` are done, and saves each of them to `file`, if it is given.
  void train(int steps, const std::string& file = "") {
    while (generator.optimizer().steps_done() < steps) {
      const std::string i = std::to_string(generator.optimizer().steps_done());
      const Tensor fake = generator.forward_for_loss(random_numbers({kBatch, 4}, "noise " + i));
      const Tensor verdict = critic.forward_for_loss(fake);
      backward(mean_squared_error(verdict, kReal.to(verdict.device())));  // through the critic into the generator
      generator.step();
      generator.zero_grad();
      critic.zero_grad();  // the generator's loss has added to its gradients, too
      critic.backward(random_numbers({kBatch, 2}, "real " + i), kReal);
      critic.backward(fake.detach(), kFake);
      critic.step();
      critic.zero_grad();
      if (!file.empty()) {
        save_models(file, models());
      }
    }
  }
  std::vector<TrainedModel> models() {
    return {{"generator", generator.model(), generator.optimizer()}, {"critic", critic.model(), critic.optimizer()}};
  }
  Pipe generator, critic;
};

int main(int argc, char** argv) {
  const std::string file = std::string(argc > 1 ? argv[1] : "runs/two_optimizers") + "/models.safetensors";
  if (argc > 2) {
    Gan gan(std::stoi(argv[2]));
    if (argc > 3) {
      load_models(file, gan.models());
    }
    gan.train(100, file);
    return 0;
  }
  Gan one(1), four(4), resumed(2);
  one.train(20);
  four.train(10, file);
  four.train(20);
  load_models(file, resumed.models());
  resumed.train(20);
  print_comparison(
      {weights_in(one.generator.model()), weights_in(four.generator.model()), weights_in(resumed.generator.model())});
  return 0;
}
