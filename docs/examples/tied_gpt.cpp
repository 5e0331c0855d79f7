// A small GPT: tokens as inputs, dropout, and a head that shares the weight of the embedding, which is on another rank.
// Trains on one device by hand, on one rank and on four.
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"
#include "nn/transformer.h"

using namespace stagecoach;

constexpr std::int64_t kVocabulary = 50, kTokens = 12, kWidth = 16, kSteps = 20;
const TiedWeights::Names kTied{{"tokens.weight", "head.weight"}};
const AdamSettings kAdam{.learning_rate = 0.003};

/// Adds a learned vector per position: [N, T, C].
class Positions final : public Module {
 public:
  Positions() { add_parameter("weight", {kTokens, kWidth}, Init::normal(0.02)); }
  Tensor forward(const Tensor& x) override { return add_broadcast(x, own("weight")); }
  Shape output_shape(const Shape& input) const override { return input; }
};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("tokens", std::make_shared<Embedding>(kVocabulary, kWidth, 0.02));
  model->add("positions", std::make_shared<Positions>());
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    model->add("drop" + n, std::make_shared<Dropout>(0.1, 1, "drop" + n));  // the name chooses its random numbers
    model->add("block" + n, std::make_shared<TransformerBlock>(kWidth, 4, LayerFactory{},
                                                               BlockSettings{.mask = AttentionMask::causal}));
  }
  model->add("norm", std::make_shared<LayerNorm>(kWidth));
  model->add("head", std::make_shared<Linear>(kWidth, kVocabulary, Bias::no));
  return model;
}

// The mean over all tokens: logits [N, T, V], and the tokens that come next [N, T].
const LossFunction kNextTokenLoss(
    [](const Tensor& logits, const Tensor& next) {
      return cross_entropy(logits.reshape({-1, kVocabulary}), next.reshape({-1}));
    },
    Reduction::mean);

Weights train(const Tensor& tokens, const Tensor& next, int ranks) {
  const auto model = make_model();
  Pipe pipe(model,
            {.chunks = kChunks, .ranks = ranks, .loss = kNextTokenLoss, .optimizer = adam(kAdam), .tied = kTied});
  pipe.place(tokens.shape(), DType::int32);  // without a type it would expect float32
  for (int step = 0; step < kSteps; ++step) {
    pipe.train_step(tokens, next);
  }
  return weights_in(*model);
}

Weights train_by_hand(const Tensor& tokens, const Tensor& next) {
  const auto model = make_model();
  model->materialize(1);
  TiedWeights tied(model->named_parameters(), kTied);
  Adam optimizer(tied.without_copies(model->named_parameters()), kAdam);
  for (int step = 0; step < kSteps; ++step) {
    backward_by_hand(*model, tokens, next, kNextTokenLoss, {.step = step});
    tied.sum_gradients();
    optimizer.step();
    tied.copy_values();
    optimizer.zero_grad();
  }
  return weights_in(*model);
}

int main() {
  const Tensor tokens = random_tokens({14, kTokens}, kVocabulary, "tokens");
  const Tensor next = random_tokens({14, kTokens}, kVocabulary, "next");
  print_comparison({train_by_hand(tokens, next), train(tokens, next, 1), train(tokens, next, 4)});
  return 0;
}
