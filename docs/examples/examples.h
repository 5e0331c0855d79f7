#pragma once
// What the examples share: random data, the epochs of a run, the same training by hand on one device, and a comparison
// of the weights.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "core/random.h"
#include "datasets/loader.h"
#include "datasets/shares.h"
#include "nn/named_values.h"
#include "parallel/parallel.h"
#include "parallel/training/run.h"

namespace stagecoach {

inline constexpr int kChunks = 4;  // micro-batches per batch

inline const LossFunction kSquares([](const Tensor& y, const Tensor& t) { return mean_squared_error(y, t); },
                                   Reduction::mean);

inline Tensor random_numbers(const Shape& shape, const std::string& name) {
  const Philox random(1, name);
  std::vector<float> numbers(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(random.normal(i));
  }
  return Tensor::from(numbers, shape);
}

/// Returns int32 tokens or labels, from 0 to below `count`.
inline Tensor random_tokens(const Shape& shape, std::uint32_t count, const std::string& name) {
  const Philox random(1, name);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(random.below(i, count));
  }
  return Tensor::from(tokens, shape);
}

/// Trains the epochs of a run that are left. `step` trains on a batch, and returns its mean loss.
inline void train_epochs(Run& run, const Dataset& data, std::int64_t batch_size,
                         const std::function<double(const Batch& batch)>& step) {
  Loader loader(data, {.batch_size = batch_size});
  for (Epoch& epoch : run.epochs()) {
    for (const Batch& batch : epoch.training_batches(loader)) {
      epoch.train_sums().add_loss(step(batch) * static_cast<double>(batch.global_size));
    }
  }
}

/// Calls `step` with the same batches, without a run.
inline void train_epochs_by_hand(int epochs, const Dataset& data, std::int64_t batch_size,
                                 const std::function<void(const Batch& batch)>& step) {
  Loader loader(data, {.batch_size = batch_size});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    loader.start_epoch(epoch);
    while (const auto batch = loader.next()) {
      step(*batch);
    }
  }
}

/// Adds to the gradients of `model` what Pipe::backward adds, on one device: those of the mean loss of a batch.
inline void backward_by_hand(Sequential& model, const PipeInput& input, const Tensor& target, const LossFunction& loss,
                             BatchPosition position = {}) {
  const std::vector<Tensor> targets = micro_batches(target, kChunks);
  for (std::size_t i = 0; const Tensor& x : micro_batches(input.x, kChunks)) {
    NamedTensors more;
    for (const auto& [name, value] : input.values) {
      more.emplace_back(name, micro_batches(value, kChunks)[i]);
    }
    const NamedValues values(more);
    const BatchScope scope(position);  // for dropout
    const Tensor part = loss(model.forward(x), targets[i++]);
    backward(part, Tensor::full({}, loss.weight(x.size(0)) / static_cast<double>(input.x.size(0))));
    position.first += x.size(0);
  }
}

/// Returns the options of the run that `PROGRAM FOLDER RANKS` starts and `PROGRAM FOLDER RANKS resume` continues.
inline RunOptions run_options(int argc, char** argv, std::int64_t batch_size) {
  return {.out = argv[1], .resume = argc > 3 ? argv[1] : "", .epochs = 20, .batch_size = batch_size, .labels = 0};
}

using Weights = std::vector<float>;

/// Returns a copy of all parameters, one after another.
inline Weights weights_in(const Module& model) {
  Weights all;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const std::vector<float> values = parameter.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Prints whether all trainings ended with the same weights, bit for bit.
inline void print_comparison(const std::vector<Weights>& trainings) {
  const Weights& first = trainings[0];
  const bool equal = std::all_of(trainings.begin(), trainings.end(), [&](const Weights& other) {
    return first.size() == other.size() && std::memcmp(first.data(), other.data(), first.size() * sizeof(float)) == 0;
  });
  std::printf("weights: %s\n", equal ? "equal" : "differ");
}

}  // namespace stagecoach
