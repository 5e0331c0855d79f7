#include "nn/save_models.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "core/autograd/backward.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "nn/sequential.h"
#include "nn/weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace stagecoach {
namespace {

using test::fails_with;
using test::random_tensor;
using test::read_bytes;
using test::same_bytes;
using test::TemporaryFolder;

/// Two models, each with an optimizer.
struct Models {
  explicit Models(std::uint64_t seed, std::int64_t width = 3) {
    generator.add("fc", std::make_shared<Linear>(width, 2)).materialize(seed);
    critic.add("bn", std::make_shared<BatchNorm2d>(2)).add("fc", std::make_shared<Flatten>()).materialize(seed);
    first = std::make_unique<Adam>(generator.named_parameters());
    second = std::make_unique<Sgd>(critic.named_parameters(), SgdSettings{.momentum = 0.9});
  }
  void train_generator(int steps) {
    for (int i = 0; i < steps; ++i) {
      const Tensor y = generator.forward(random_tensor({4, 3}, "x", DType::float32));
      backward(mean_squared_error(y, Tensor::zeros({4, 2})));
      first->step();
      first->zero_grad();
    }
  }
  std::vector<TrainedModel> named(const std::string& of_first = "generator", const std::string& of_second = "critic") {
    return {{of_first, generator, *first}, {of_second, critic, *second}};
  }
  Sequential generator;
  Sequential critic;
  std::unique_ptr<Optimizer> first;
  std::unique_ptr<Optimizer> second;
};

TEST(SaveModels, ComeBackTogether) {
  const TemporaryFolder folder;
  const std::string file = folder.file("new/models");  // the folder is created
  Models saved(1);
  saved.train_generator(3);
  save_models(file, saved.named());
  Models loaded(2);
  load_models(file, loaded.named());
  EXPECT_EQ(loaded.first->steps_done(), 3);
  save_models(folder.file("again"), loaded.named());
  EXPECT_EQ(read_bytes(file), read_bytes(folder.file("again")));
  saved.train_generator(1);
  loaded.train_generator(1);
  EXPECT_TRUE(same_bytes(find_tensor(weights_of(saved.generator), "fc.weight"),
                         find_tensor(weights_of(loaded.generator), "fc.weight")));
}

TEST(SaveModels, ThatDoNotFitChangeNothing) {
  const TemporaryFolder folder;
  Models models(1);
  save_models(folder.file("models"), models.named());
  save_models(folder.file("before"), models.named());
  models.train_generator(1);
  save_models(folder.file("now"), models.named());
  const auto refuses = [&](const char* what, const std::vector<TrainedModel>& others) {
    EXPECT_TRUE(fails_with<DataError>({what}, [&] { load_models(folder.file("models"), others); }));
  };
  const std::vector<TrainedModel> both = models.named();
  refuses("critic.model.bn.weight", {both[0]});  // an extra one
  refuses("artist.model.fc.weight", {{"artist", both[0].model, both[0].optimizer}, both[1]});
  Models wider(1, 5);
  refuses("generator.model.fc.weight", {{"generator", wider.generator, *wider.first}, both[1]});
  save_models(folder.file("after"), models.named());
  EXPECT_EQ(read_bytes(folder.file("after")), read_bytes(folder.file("now")));
}

TEST(SaveModels, HaveNamesOfTheirOwn) {
  const TemporaryFolder folder;
  Models models(1);
  for (const auto& [first, second] : {std::pair("a", "a"), std::pair("a.b", "c"), std::pair("a", "")}) {
    EXPECT_TRUE(fails_with<UsageError>({"a name of its own for each model", "without dots"},
                                       [&] { save_models(folder.file("models"), models.named(first, second)); }));
  }
}

}  // namespace
}  // namespace stagecoach
