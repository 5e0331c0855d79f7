#include "chapters/02_naive_model_parallel/toy.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/models.h"
#include "nn/optimizer.h"
#include "parallel/launch/launch.h"
#include "parallel/pipeline/gather.h"
#include "parallel/pipeline/split.h"
#include "parallel/pipeline/stage.h"

namespace stagecoach {
namespace {

const LayerRanks kLayers{{"fc1", 0}, {"relu1", 0}, {"fc2", 1}};  // which rank holds which layer
constexpr double kLearningRate = 0.1;

Tensor inputs(Device device) { return Tensor::from(std::vector<float>{1, 2, 3, 4, 4, 3, 2, 1}, {2, 4}, device); }
Tensor targets(Device device) { return Tensor::from(std::vector<float>{1, 0, 0, 1}, {2, 2}, device); }

void print(const char* when, const NamedTensors& weights) {
  fmt::print("  {}\n", when);
  for (const auto& [name, tensor] : weights) {
    const auto numbers = tensor.to_vector<float>();
    const auto columns = tensor.size(tensor.dims() - 1);
    for (auto row = numbers.begin(); row != numbers.end(); row += columns) {
      std::string line;
      std::for_each(row, row + columns, [&](float number) { line += fmt::format(" {:8.4f}", number); });
      fmt::print("    {:<10}{}\n", row == numbers.begin() ? name : "", line);
    }
  }
}

/// Runs the step on one of the two ranks, with the chapter's two messages: activations and their gradient.
void step_on_two_ranks(const Settings& settings, Rank& rank, NamedTensors& after) {
  const auto layers = stages_of(*make_model("toy"), {2, 1})[static_cast<std::size_t>(rank.index)];
  layers->materialize(settings.training.seed, rank.device);
  const NamedTensors before = gather_tensors(rank.comm, kLayers, layers->named_parameters());
  if (rank.index == 0) {
    print("before the step (fc1 on rank 0, fc2 on rank 1)", before);
  }

  Sgd optimizer(layers->named_parameters(), {.learning_rate = kLearningRate});
  if (rank.index == 0) {
    Stage stage(layers);
    rank.comm.send(stage.forward(0, inputs(rank.device), false), 1, 0);  // activations [2, 6]
    stage.backward(0, rank.comm.receive({2, 6}, DType::float32, 1, 0));  // their gradient
  } else {
    Tensor x = rank.comm.receive({2, 6}, DType::float32, 0, 0);
    x.set_requires_grad(true);
    const Tensor loss = mean_squared_error(layers->forward(x), targets(rank.device));
    backward(loss);
    rank.comm.send(x.grad(), 0, 0);
  }
  optimizer.step();

  const NamedTensors all = gather_tensors(rank.comm, kLayers, layers->named_parameters());
  if (rank.index == 0) {
    print("after it", all);
    after = all;
  }
}

NamedTensors step_on_one_device(const Settings& settings) {
  const auto model = make_model("toy");
  model->materialize(settings.training.seed);
  Sgd optimizer(model->named_parameters(), {.learning_rate = kLearningRate});
  backward(mean_squared_error(model->forward(inputs({})), targets({})));
  optimizer.step();
  return model->named_parameters();
}

bool same_bytes(const NamedTensors& a, const NamedTensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.template to_vector<float>() == y.second.template to_vector<float>();
  });
}

}  // namespace

void show_toy(const Settings& settings) {
  fmt::print("The toy model (4 numbers to 6 to 2) on two ranks, one step\n");
  NamedTensors after;
  launch({.ranks = 2, .timeout = settings.world.timeout},
         [&](Rank& rank) { step_on_two_ranks(settings, rank, after); });
  fmt::print("  one device gets {} weights\n\n",
             same_bytes(after, step_on_one_device(settings)) ? "the same" : "OTHER");
}

}  // namespace stagecoach
