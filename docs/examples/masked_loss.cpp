// A mean over valid positions: sequences have lengths of their own, and what is beyond them does not count.
// Micro-batches have different numbers of valid positions, so their means may not be averaged: the loss is a sum here,
// and a named value says by what the whole batch divides it. Trains on one device by hand, on one rank and on four.
#include <cmath>
#include <memory>

#include "examples.h"
#include "nn/layers.h"
#include "nn/transformer.h"

using namespace stagecoach;

constexpr std::int64_t kVocabulary = 50, kTokens = 12, kWidth = 16, kClasses = 5, kBatch = 22;

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("tokens", std::make_shared<Embedding>(kVocabulary, kWidth));
  model->add("block0", std::make_shared<TransformerBlock>(kWidth, 4));
  model->add("block1", std::make_shared<TransformerBlock>(kWidth, 4));
  model->add("head", std::make_shared<Linear>(kWidth, kClasses));
  return model;
}

/// Returns targets [N, T, C]: 1 for the class of a position, and only zeros where it is not valid.
Tensor random_targets() {
  const Philox random(1, "targets");
  std::vector<float> targets(static_cast<std::size_t>(kBatch * kTokens * kClasses));
  for (std::int64_t sample = 0; sample < kBatch; ++sample) {
    const std::int64_t length = 1 + random.below(static_cast<std::uint64_t>(1000 + sample), kTokens);
    for (std::int64_t i = sample * kTokens; i < sample * kTokens + length; ++i) {
      targets[static_cast<std::size_t>(i * kClasses + random.below(static_cast<std::uint64_t>(i), kClasses))] = 1;
    }
  }
  return Tensor::from(targets, {kBatch, kTokens, kClasses});
}

/// Returns the cross-entropy of the valid positions, summed.
Tensor sum_of_valid(const Tensor& logits, const Tensor& target) {
  const std::int64_t n = logits.numel();
  return scale(matmul(log_softmax(logits).reshape({1, n}), target.reshape({n, 1})).reshape({}), -1);
}

const LossFunction kMeanOfValid(
    [](const Tensor& logits, const Tensor& target) {
      return scale(sum_of_valid(logits, target), NamedValues::get("samples per valid").to_vector<double>()[0]);
    },
    Reduction::sum);

int main() {
  const Tensor target = random_targets();
  const std::vector<float> ones = target.to_vector<float>();
  const double valid = static_cast<double>(std::count(ones.begin(), ones.end(), 1.0F));
  const PipeInput x(random_tokens({kBatch, kTokens}, kVocabulary, "x"),
                    {{"samples per valid", Tensor::full({kBatch}, kBatch / valid, DType::float64)}});
  const auto alone = make_model();
  alone->materialize(1);
  const double expected = sum_of_valid(alone->forward(x.x), target).item() / valid;
  Sgd optimizer(alone->named_parameters());
  backward_by_hand(*alone, x, target, kMeanOfValid);
  optimizer.step();
  std::vector<Weights> all{weights_in(*alone)};
  for (const int ranks : {1, 4}) {
    Pipe pipe(make_model(), {.chunks = kChunks, .ranks = ranks, .loss = kMeanOfValid});
    const double loss = pipe.train_step(x, target);
    std::printf("loss: %.6f, mean over the valid positions: %.6f\n", loss, expected);
    all.push_back(std::abs(loss - expected) < 1e-5 ? weights_in(pipe.model()) : Weights());
  }
  print_comparison(all);
  return 0;
}
