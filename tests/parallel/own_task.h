#pragma once
/// @file
/// Models, data and losses as of a program of one's own, and what one device makes of them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "datasets/shares.h"
#include "nn/batch_position.h"
#include "nn/layers.h"
#include "nn/named_values.h"
#include "nn/tied_weights.h"
#include "parallel/wrappers/pipe.h"
#include "tests/parallel/image_task.h"
#include "tests/support/tensors.h"

namespace stagecoach::test {

inline constexpr std::uint64_t kTaskSeed = 3;
inline constexpr int kTaskSteps = 3;

inline Tensor squared_error(const Tensor& output, const Tensor& target) { return mean_squared_error(output, target); }
inline Tensor summed_squared_error(const Tensor& output, const Tensor& target) {
  return mean_squared_error(output, target, Reduction::sum);
}
inline const LossFunction kMeanSquares(squared_error, Reduction::mean);

/// Six layers, for points [N, 4]; one of them draws random numbers.
inline std::shared_ptr<Sequential> dropout_model() {
  auto model = std::make_shared<Sequential>();
  model->add("fc1", std::make_shared<Linear>(4, 8)).add("relu", std::make_shared<ReLU>());
  model->add("dropout", std::make_shared<Dropout>(0.5, kTaskSeed, "dropout"))
      .add("fc2", std::make_shared<Linear>(8, 8));
  model->add("gelu", std::make_shared<GELU>()).add("fc3", std::make_shared<Linear>(8, 3));
  return model;
}

/// What is trained on: batches of seven samples, so that micro-batches differ in size.
struct OwnTask {
  std::function<std::shared_ptr<Sequential>()> make = dropout_model;
  Tensor x = random_tensor({7, 4}, "points", DType::float32);
  Tensor target = random_tensor({7, 3}, "targets", DType::float32);
  LossFunction loss = kMeanSquares;
  MakeOptimizer optimizer = adam({.learning_rate = 0.01});
  double max_norm = 0;  // 0: gradients are not clipped
  int chunks = 3;
  NamedTensors values = {};  // more inputs
  TiedWeights::Names tied = {};

  /// Returns the model after training on one device, and the losses of the steps.
  std::shared_ptr<Sequential> on_one_device(std::vector<double>* losses = nullptr) const {
    const auto model = make();
    model->materialize(kTaskSeed);
    TiedWeights tied_weights(model->named_parameters(), tied);
    const auto made = optimizer(tied_weights.without_copies(model->named_parameters()));
    if (max_norm > 0) {
      made->clip_norm(max_norm);
    }
    for (int step = 0; step < kTaskSteps; ++step) {
      const double sum = accumulate_gradients(*model, step);
      if (losses != nullptr) {
        losses->push_back(sum / static_cast<double>(x.size(0)));
      }
      tied_weights.sum_gradients();
      made->step();
      tied_weights.copy_values();
      made->zero_grad();
    }
    return model;
  }
  /// `first` is the number of samples that were trained on since the last step.
  double accumulate_gradients(Module& model, int step, std::int64_t first = 0) const {
    const std::vector<Tensor> inputs = micro_batches(x, chunks);
    const std::vector<Tensor> targets = micro_batches(target, chunks);
    double loss_sum = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const BatchScope scope(BatchPosition{step, first});
      NamedTensors values_of_part;
      for (const auto& [name, value] : values) {
        values_of_part.emplace_back(name, micro_batches(value, chunks)[i]);
      }
      const NamedValues named(values_of_part);
      const Tensor loss_of_part = loss(model.forward(inputs[i]), targets[i]);
      const double weight = loss.weight(inputs[i].size(0));
      backward(loss_of_part, Tensor::full({}, weight / static_cast<double>(x.size(0))));
      loss_sum += loss_of_part.item() * weight;
      first += inputs[i].size(0);
    }
    return loss_sum;
  }
  PipeInput input() const { return {x, values}; }
  Pipe pipe(const std::shared_ptr<Sequential>& model, PipeSettings settings) const {
    settings.chunks = chunks;
    settings.loss = loss;
    settings.optimizer = optimizer;
    settings.tied = tied;
    settings.seed = kTaskSeed;
    Pipe made(model, std::move(settings));
    made.place(input());
    if (max_norm > 0) {
      made.optimizer().clip_norm(max_norm);
    }
    return made;
  }
};

inline void expect_pipe_trains_as_one_device(const OwnTask& task) {
  std::vector<double> losses;
  const auto wanted = task.on_one_device(&losses);
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const auto model = task.make();
    Pipe pipe = task.pipe(model, {.ranks = ranks});
    for (const double loss : losses) {
      EXPECT_EQ(pipe.train_step(task.input(), task.target), loss);
    }
    expect_equal(wanted->named_parameters(), model->named_parameters());
  }
}

}  // namespace stagecoach::test
