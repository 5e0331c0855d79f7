// A small GPT: tokens as inputs, dropout, and a head that shares the weight of the embedding, which is on another rank.
// Trains on one device by hand, on one rank and on four. `tied_gpt FOLDER RANKS` only trains; with `resume` at the end
// it continues that run.
#include <memory>
#include <string>

#include "examples.h"
#include "nn/layers.h"
#include "nn/transformer.h"

using namespace stagecoach;

constexpr std::int64_t kVocabulary = 50, kTokens = 12, kWidth = 16, kBatch = 14;
constexpr int kEpochs = 3;
const Dataset kData{random_tokens({103, kTokens}, kVocabulary, "tokens"),
                    random_tokens({103, kTokens}, kVocabulary, "next")};
const TiedWeights::Names kTied{{"tokens.weight", "head.weight"}};
const AdamSettings kAdam{.learning_rate = 0.003};

std::shared_ptr<Sequential> make_model() {
  auto model = std::make_shared<Sequential>();
  model->add("tokens", std::make_shared<Embedding>(kVocabulary, kWidth, 0.02));
  model->add("positions", std::make_shared<PositionEmbedding>(kTokens, kWidth, 0.02, DropoutSettings{}));
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

Weights train(const RunOptions& options, int ranks) {
  const auto model = make_model();
  Pipe pipe(model,
            {.chunks = kChunks, .ranks = ranks, .loss = kNextTokenLoss, .optimizer = adam(kAdam), .tied = kTied});
  Run run(options, pipe.role());
  pipe.place({kBatch, kTokens}, DType::int32);  // without a type it would expect float32
  run.set_up_checkpoints({kData, kData}, *model, pipe.optimizer());
  train_epochs(run, kData, kBatch, [&](const Batch& batch) { return pipe.train_step(batch.inputs, batch.targets); });
  return weights_in(*model);
}

Weights train_by_hand() {
  const auto model = make_model();
  model->materialize(1);
  TiedWeights tied(model->named_parameters(), kTied);
  Adam optimizer(tied.without_copies(model->named_parameters()), kAdam);
  train_epochs_by_hand(kEpochs, kData, kBatch, [&](const Batch& batch) {
    backward_by_hand(*model, batch.inputs, batch.targets, kNextTokenLoss, {.step = optimizer.steps_done()});
    tied.sum_gradients();
    optimizer.step();
    tied.copy_values();
    optimizer.zero_grad();
  });
  return weights_in(*model);
}

int main(int argc, char** argv) {
  const RunOptions options{.epochs = kEpochs, .batch_size = kBatch, .labels = 0};
  if (argc > 2) {
    train(run_options(argc, argv, kBatch), std::stoi(argv[2]));
  } else {
    print_comparison({train_by_hand(), train(options, 1), train(options, 4)});
  }
  return 0;
}
